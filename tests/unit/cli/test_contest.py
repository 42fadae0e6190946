"""The accuracy check, and mistakes that are refused before anything is sent."""

import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.core.errors import InvalidConfig
from chairlift.lab.bench.target import Address
from fakes.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("contest") / "tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "alpaca.json"
    lengths = (20, 45, 60, 33)
    records = [
        {"instruction": f"Hello world {n}", "input": "the quick brown fox " * 3, "output": "hello there " * n}
        for n in lengths
    ]
    path.write_text(json.dumps(records))
    return path


def judge(model: Path, data: Path, *more: object) -> int:
    common = ("--model", model, "--data", data, "--device", "cpu", "--dtype", "float32", "--threads", "1")
    return main(["contest", "--accuracy", *map(str, (*common, *more))])


def test_a_stored_run_matches_other_batch_sizes(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(model, data, "--save", tmp_path / "base", "--max-running", "1") == 0
    stored = json.loads((tmp_path / "base" / "verify.json").read_text())
    counts = [len(request["tokens"]) for request in stored["requests"]]
    wanted = [request["params"]["max_tokens"] for request in stored["requests"]]
    assert wanted[0] < wanted[3] < wanted[1] < wanted[2]
    assert all(count <= most for count, most in zip(counts, wanted, strict=True))
    num_rows = len(list((tmp_path / "base" / "file_npy").glob("*_100.npy")))
    assert num_rows > 0
    assert len(list((tmp_path / "base" / "file_npy_objects").glob("*_100.npy"))) == num_rows
    assert judge(model, data, "--against", tmp_path / "base", "--max-running", "4") == 0
    assert "none altered" in capsys.readouterr().out


def test_a_folder_of_the_contest_s_own_has_no_index(model: Path, data: Path, tmp_path: Path) -> None:
    assert judge(model, data, "--save", tmp_path / "base") == 0
    (tmp_path / "base" / "verify.json").unlink()
    assert judge(model, data, "--against", tmp_path / "base" / "file_npy") == 0
    next((tmp_path / "base" / "file_npy").iterdir()).unlink()
    assert judge(model, data, "--against", tmp_path / "base" / "file_npy") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "-X: missing"),
        (("-X", "5", "--task", "1"), "--task 1 sends alpaca_5010.json, which is not in this folder"),
        (("-X", "5", "--task", "3"), "--task must be a whole number between 1 and 2, got '3'"),
        (("-X", "5", "--task", "1", "--data", "a.json"), "--task and --data both name the prompts"),
        (("--accuracy",), "--accuracy: give a new folder with --save"),
        (("--accuracy", "--against", "nowhere"), "--against nowhere: no such folder"),
        (("-X", "5", "-P", "1", "-O", ".", "--save", "x"), "--save, --against, --url and --logits are for --accuracy"),
        (("--accuracy", "--save", "x", "--logits", "y"), "--logits: is for --url"),
        (("-X", "0", "-P", "1", "-O", "."), "--qps must be a number above 0, got '0'"),
        (("-X", "1", "-P", "1", "-O", ".", "--data", "nowhere.json"), "nowhere.json: cannot be read"),
        (("-X", "1", "-O", ".", "--data", "contests"), "contests: no such file (did you mean contest?)"),
        (("-X", "1", "-P", "1", "-O", ".", "--tokenizer", "nowhere"), "--tokenizer must be an existing file"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contest", *arguments]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "port"),
    [(("-P", "7"), 7), (("--config", "llama.yaml"), 9), ((), 8835), (("--config", "llama.yaml", "-P", "7"), 7)],
)
def test_the_port_is_the_flag_s_or_the_file_s(
    arguments: tuple[str, ...],
    port: int,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(address: Address) -> None:
        raise InvalidConfig(f"asked {address.host}:{address.port}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("chairlift.lab.bench.probe.find_peer", refuse)
    Path("llama.yaml").write_text("serving_config: {server_port: 9}\ntokenizer: {vocab_file: nowhere.model}")
    assert main(["contest", "-X", "1", "-T", "1", "--data", str(data), *arguments]) == 2
    said = capsys.readouterr().err
    assert f"asked 127.0.0.1:{port}\n" in said
    assert "embedded default" not in said
    assert ("vocab_file nowhere.model does not exist: counting with another" in said) == ("--config" in arguments)
