"""The bits of `--exact` have a name, and an engine that takes another's place must have the same."""

import os
import shutil
import signal
from pathlib import Path

import httpx
import pytest
from safetensors.numpy import load_file, save_file

from fakes.patience import HANG_S, wait_until
from fakes.served import Served, serve

pytestmark = pytest.mark.nightly


def kill(served: Served) -> str:
    """What the server says until an engine is ready again."""
    before = len(served.output)
    os.kill(served.pids()[0], signal.SIGKILL)
    wait_until(lambda: "ready again" in served.output[before:], lambda: served.output)
    return served.output[before:]


def fingerprint(served: Served) -> str:
    response = httpx.post(f"{served.url}/v1/completions", json={"prompt": "up", "max_tokens": 1}, timeout=HANG_S)
    assert response.status_code == 200
    found: str = response.json()["system_fingerprint"]
    return found


def test_other_bits_are_taken_only_if_two_engines_in_a_row_have_them(tiny_model: Path, tmp_path: Path) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    with serve(tmp_path / "log", "--model", model, "--exact", "--kv-memory", "16MiB") as served:
        first = fingerprint(served)
        assert f"exact (fingerprint {first})" in served.output
        assert "bits" not in kill(served)
        assert fingerprint(served) == first
        weights = load_file(model / "model.safetensors")
        weights["model.layers.1.mlp.up_proj.weight"][0, 0] += 1.0
        save_file(weights, tmp_path / "changed", {"format": "pt"})
        os.replace(tmp_path / "changed", model / "model.safetensors")
        said = kill(served)
        second = fingerprint(served)
        assert second != first
        assert f"this engine's fingerprint is {second} and that of answers so far {first}" in said
        assert (
            f"from here on answers have the fingerprint {second}: two engines in a row have; before it was {first}"
            in said
        )
        assert said.count("the engine died") == 2
        assert "bits" not in kill(served)
