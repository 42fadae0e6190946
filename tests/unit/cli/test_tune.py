import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.config.options.resolve import resolve
from chairlift.core.errors import ChairliftError

LENGTHS = "lengths:prompt=8-40,output=1-60,count=30"


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine of one core; one test has processes."""
    monkeypatch.setattr("chairlift.lab.tune.workers.num_processors", lambda: 1)


def given(tmp_path: Path) -> list[str]:
    profile = ("--profile", "h200-llama2-7b", "--minutes", "0.0001")
    return ["tune", "--workload", LENGTHS, *profile, "--out", str(tmp_path / "out")]


def tune(tmp_path: Path, *arguments: str) -> int:
    return main([*given(tmp_path), "--no-verify", *arguments])


def test_it_writes_a_yaml_for_serve_and_says_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chairlift.lab.tune.workers.num_processors", lambda: 2)
    assert tune(tmp_path, "--arrivals", "none") == 0
    shown = capsys.readouterr()
    assert "simulated" in shown.out
    assert "tuned.yaml" in shown.err
    resolve({}, tmp_path / "out" / "tuned.yaml")


def test_the_terminal_says_what_bounds_the_gain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--arrivals", "poisson:rate=5") == 0
    shown = capsys.readouterr().out
    assert "because the arrivals set the pace, whatever the settings." in shown
    assert "The time was over before the search was (settings tried: " in shown


def test_the_json_object_is_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json", "--arrivals", "poisson:rate=5") == 0
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((tmp_path / "out" / "tune.json").read_text())
    assert result["not_verified"] == "--no-verify was given"
    assert result["goal"] == "latency"


def test_an_option_that_is_given_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json", "--arrivals", "none", "--policy", "fcfs", "--max-running", "8") == 0
    result = json.loads(capsys.readouterr().out)
    assert not {"policy", "max_running"} & set(result["default"]["choice"])
    settings = resolve({}, tmp_path / "out" / "tuned.yaml")
    assert (settings.policy, settings.max_running) == ("fcfs", 8)


def test_what_a_file_gives_stays_and_so_does_the_size_of_blocks_whose_number_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "given.yaml").write_text("policy: fcfs\nnum_blocks: 500\n")
    assert tune(tmp_path, "--json", "--arrivals", "none", "--config", str(tmp_path / "given.yaml")) == 0
    result = json.loads(capsys.readouterr().out)
    assert not {"policy", "block_size"} & set(result["default"]["choice"])


@pytest.mark.slow
def test_a_slo_that_nothing_meets_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slo = ("--slo", "ttft_p50=10ms", "--arrivals", "none", "--max-running", "1")
    assert tune(tmp_path, *slo) == 1
    assert "No setting that was tried meets ttft_p50=10ms" in capsys.readouterr().out


def test_a_profile_of_another_machine_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*given(tmp_path), "--arrivals", "none", "--json"]) == 0
    assert "the profile is of Llama-2-7B" in json.loads(capsys.readouterr().out)["not_verified"]


def test_a_failed_real_run_keeps_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise ChairliftError("out of memory")

    monkeypatch.setattr("chairlift.cli.lab.tune._why_not", lambda profile, model: "")
    monkeypatch.setattr("chairlift.lab.tune.verify.carry_out", fails)
    assert main([*given(tmp_path), "--arrivals", "none"]) == 0
    assert "Nothing was measured: a real run failed: out of memory." in (tmp_path / "out" / "tune.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--slo", "ttft=soon"], "--slo 'ttft=soon' is not known; give a time above 0 for each request"),
        (["--slo", "tpot_p50=1us"], "--slo 'tpot_p50=1us' is not known"),
        (["--slo", "tpot_p50=1ms"], "--slo tpot_p50=1ms: cannot be met"),
        (["--minutes", "0"], "--minutes must be a number above 0"),
        (["--minutes", "soon"], "--minutes must be a number above 0"),
        (["--arrivals", "soon"], "--arrivals 'soon' is not known"),
        (["--profile", "h100"], "profile h100: no such file"),
        (["--workload", "/no/such/file"], "cannot be read"),
        (["--max-model-len", "20"], "request 1 of the workload"),
        (["--out", "/no/such/folder/out"], "there is no folder to make it in"),
        (["--out", "/dev/null"], "is a file, not a folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(tmp_path, *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("chairlift: error: ")
    assert complaint in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_bad_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w").write_text('{"prompt_tokens": 1, "output_tokens": 1}\n{"prompt_tokens": 1}\n')
    assert tune(tmp_path, "--workload", str(tmp_path / "w")) == 2
    assert "w, line 2" in capsys.readouterr().err


def test_a_profile_of_another_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1,
              "num_attention_heads": 1, "intermediate_size": 16}  # fmt: skip
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    assert tune(tmp_path, "--model", str(tmp_path / "model"), "--load-format", "dummy") == 2
    assert "profile h200-llama2-7b is of model Llama-2-7B, not of model" in capsys.readouterr().err
