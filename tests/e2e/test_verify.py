"""`chairlift verify` on a running server, and a run stored here against what the server says."""

import json
from pathlib import Path

import pytest

from e2e.conftest import NUMBERS
from fakes.served import Served, chairlift


@pytest.mark.nightly
def test_a_run_stored_here_is_what_a_server_says(server: Served, tiny_model: Path, tmp_path: Path) -> None:
    stored = chairlift("verify", "--save", tmp_path / "base", "--model", tiny_model, *NUMBERS, "--threads", "1")
    assert stored.returncode == 0, stored.stderr
    compared = chairlift("verify", "--against", tmp_path / "base", "--url", server.url, "--json", tmp_path / "out.json")
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert json.loads((tmp_path / "out.json").read_text())["total"]["tokens"] == 72


@pytest.mark.nightly
def test_a_server_is_asked_alone_and_all_at_once(server: Served, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    few = ("--num-prompts", "4", "--tokens", "6")
    run = chairlift("verify", "--against", "batch", "--url", server.url, *few, "--json", out)
    report = json.loads(out.read_text())
    # In float32 it depends on the machine whether a batch changes a last bit; it never changes a text.
    assert run.returncode == (0 if report["total"]["rows_differing"] else 2), run.stdout + run.stderr
    assert report["total"]["texts_differing"] == 0
    assert report["total"]["tokens"] == 3 * 5 * 6
