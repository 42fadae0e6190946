"""A command finds its model once: that may be a download, and its warnings are printed each time."""

import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.cli.main import main
from chairlift.models import source
from fakes.tiny_model import write_tiny_model

ENGINE = ("--kernels", "torch", "--dtype", "float32", "--threads", "1", "--max-model-len", "256", "--max-running", "4")


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found, locate = [], source._locate

    def noting(*arguments: Any) -> source.Source:
        found.append(arguments)
        return locate(*arguments)

    monkeypatch.setattr(source, "_locate", noting)
    return found


@pytest.mark.parametrize("what", ["reference", "batch", "save"])
def test_by_verify(what: str, tiny_model: str, tmp_path: Path, found: list[Any]) -> None:
    asked = ("--save", str(tmp_path / "new")) if what == "save" else ("--against", what)
    main(["verify", *asked, "--num-prompts", "2", "--tokens", "4", "--model", tiny_model, *ENGINE])
    assert len(found) == 1


def test_by_the_contests_accuracy_check(tiny_model: str, tmp_path: Path, found: list[Any]) -> None:
    (tmp_path / "data.json").write_text(json.dumps([{"instruction": "hello", "input": "", "output": "there it is"}]))
    asked = ("--data", str(tmp_path / "data.json"), "--save", str(tmp_path / "new"))
    assert main(["contest", "--accuracy", *asked, "--model", tiny_model, *ENGINE]) == 0
    assert len(found) == 1


def test_by_tune(tmp_path: Path, found: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chairlift.lab.tune.workers.num_processors", lambda: 1)
    model = write_tiny_model(tmp_path / "Llama-2-7B")
    asked = ("--workload", "lengths:prompt=8-40,output=1-60,count=30", "--arrivals", "none", "--minutes", "0.0001")
    profile = ("--profile", "h200-llama2-7b", "--model", str(model), "--out", str(tmp_path / "out"))
    assert main(["tune", *asked, *profile]) == 0
    assert len(found) == 1
