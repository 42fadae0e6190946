"""`chairlift pull`, `list` and `rm`, with a hub on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chairlift.cli.main import main
from fakes.hub_server import served_hub
from fakes.patience import HANG_S

FILES = {"tiny-Q4_K_M.gguf": b"four" * 300, "tiny-Q8_0.gguf": b"eight" * 400, "README.md": b"# Tiny"}


def pull(name: str, endpoint: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the hub's library reads the address when it is imported."""
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "chairlift", "pull", name, "--download-dir", str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S)


def listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    assert main(["list", "--json", "--download-dir", str(folder)]) == 0
    return {model["name"]: model["bytes"] for model in json.loads(capsys.readouterr().out)}


@pytest.mark.slow
def test_models_are_pulled_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served_hub({"org/tiny": FILES}) as endpoint:
        for kind in ("Q4_K_M", "Q8_0"):
            done = pull(f"org/tiny:{kind}", endpoint, tmp_path)
            assert done.returncode == 0, done.stderr
            assert f"serve it: chairlift serve org/tiny:{kind}" in done.stdout
        missing = pull("org/other", endpoint, tmp_path)
    assert missing.returncode == 2
    assert "neither a local folder nor a model on the hub" in missing.stderr
    assert listed(tmp_path, capsys) == {"org/tiny:Q4_K_M": 1200, "org/tiny:Q8_0": 2000}
    assert main(["rm", "org/tiny:q8_0", "--download-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "removed org/tiny:q8_0, 2.0 KiB\n"
    assert listed(tmp_path, capsys) == {"org/tiny:Q4_K_M": 1200}
    assert main(["rm", "org/tiny", "--download-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "removed org/tiny, 1.2 KiB\n"
    assert listed(tmp_path, capsys) == {}


def stored(folder: Path, repo: str, **files: str) -> None:
    """As the hub's cache has it: files are links to blobs, which others may share."""
    place = folder / f"models--{repo.replace('/', '--')}"
    for part in ("blobs", "snapshots/abc", "refs"):
        (place / part).mkdir(parents=True, exist_ok=True)
    (place / "refs" / "main").write_text("abc")
    for name, content in files.items():
        (place / "blobs" / content).write_text(content)
        (place / "snapshots" / "abc" / name).symlink_to(place / "blobs" / content)


def test_a_removed_model_leaves_what_others_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(tmp_path, "org/both", **{"model.safetensors": "same", "config.json": "{}", "a-Q8_0.gguf": "same"})
    assert listed(tmp_path, capsys) == {"org/both": 6, "org/both:Q8_0": 4}
    assert main(["rm", "org/both:Q8_0", "--download-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "removed org/both:Q8_0, 0 B\n"
    assert listed(tmp_path, capsys) == {"org/both": 6}


def test_an_empty_list_says_how_to_fill_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--download-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no models are stored; download one: chairlift pull ORG/NAME\n"


def test_a_model_that_is_not_stored_is_refused_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, "org/one", **{"model.safetensors": "weights"})
    assert main(["rm", "org/two", "--download-dir", str(tmp_path)]) == 2
    assert "org/two: no such model is stored; stored are: org/one" in capsys.readouterr().err
    assert main(["pull", str(tmp_path), "--download-dir", str(tmp_path)]) == 2
    assert "is on this machine; serve it as it is" in capsys.readouterr().err
