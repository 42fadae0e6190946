"""The command: its exit codes, its file, and the mistakes it refuses before anything is loaded."""

import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.lab.verify.opened import OpenedModel
from chairlift.runner.start import choices
from fakes.row_dependent import RowDependentOps
from fakes.tiny_model import write_tiny_model

PLAIN = ("--kernels", "torch", "--dtype", "float32", "--threads", "1", "--max-running", "5", "--max-model-len", "512")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("cli") / "tiny"))


@pytest.mark.slow
def test_a_failed_check_is_exit_code_1_with_a_table_and_a_file(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(choices, "make_ops", lambda kernels, threads, exact=False: RowDependentOps())
    out = tmp_path / "report.json"
    asked = ("--num-prompts", "4", "--tokens", "4", "--json", str(out))
    code = main(["verify", "--against", "batch", "--exact", "--model", tiny, *PLAIN, *asked])
    assert code == 1
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1].startswith("fail: ")
    report = json.loads(out.read_text())
    assert (report["verdict"], report["exit_code"]) == ("fail", 1)
    assert report["total"]["rows_differing"] > 0


def test_a_stored_run_compares_with_exit_code_0_and_too_little_with_2(tiny: str, tmp_path: Path) -> None:
    base = str(tmp_path / "base")
    assert main(["verify", "--save", base, "--model", tiny, *PLAIN]) == 0
    assert main(["verify", "--against", base, "--model", tiny, *PLAIN, "--policy", "shortest-first"]) == 0
    assert main(["verify", "--against", "reference", "--model", tiny, *PLAIN, "--num-prompts", "1"]) == 2


def test_keys_that_are_not_known_are_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hill_depth": 3}))
    main(["verify", "--against", "batch", "--model", str(folder), *PLAIN, "--num-prompts", "1", "--tokens", "1"])
    assert (capsys.readouterr().err + caplog.text).count("hill_depth") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--against", "nowhere"], "--against must be reference, batch or the folder of a stored run, got 'nowhere'"),
        (["--against", "reference", "--url", "http://x"], "a server gives log-probabilities"),
        (["--against", "batch", "--control-url", "http://x"], "give --url too"),
        (["--against", "batch", "--tokens", "none"], "--tokens must be a whole number between 1 and"),
        (["--against", "batch", "--num-prompts", "0"], "--num-prompts must be a whole number"),
        (["--against", "batch", "--prompts", "nowhere.txt"], "nowhere.txt: cannot be read"),
        (["--against", "batch", "--json", "nowhere/x.json"], "--json must be a file in an existing folder"),
        (
            ["--against", "batch", "--url", "http://x", "--logits", "."],
            "--logits: is for --url with --save or --against",
        ),
        (["--save", "x", "--logits", "."], "--logits: is for --url with --save or --against"),
        (["--save", "."], "--save .: is there already"),
        (
            ["--against", "batch", "--adapters", "sql"],
            "--adapters: names adapters of a server; give --url too, or",
        ),
        (
            ["--against", "batch", "--url", "http://x", "--lora", "sql=."],
            "--lora: a server has its own adapters; name them with --adapters, or leave --url out",
        ),
        (["--against", "batch", "--url", "http://x", "--lora-dir", "."], "name them with --adapters, or leave --url"),
        (
            ["--against", "reference", "--lora", "sql=."],
            "--lora: references compute the base alone; use --against",
        ),
        (["--against", "batch", "--lora-dir", "."], "--lora-dir .: holds no adapters; give their folder"),
        (["--save", "x", "--lora", "sql=."], "no adapter_config.json in this folder"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2_before_anything_is_loaded(
    arguments: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(OpenedModel, "open", lambda model: pytest.fail("loaded"))
    assert main(["verify", *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
