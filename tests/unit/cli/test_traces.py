import json
from pathlib import Path

import pytest

from chairlift.cli.main import main

WORKLOAD = "lengths:prompt=10-40,output=5-30,count=30"


@pytest.fixture
def trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = tmp_path / "trace.jsonl"
    flags = ["--max-running", "4", "--num-blocks", "16", "--arrivals", "poisson:rate=100", "--trace", str(path)]
    assert main(["simulate", "--workload", WORKLOAD, *flags]) == 0
    capsys.readouterr()
    return str(path)


def test_trace_gives_the_figures_of_the_run(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", trace, "--json", "--slo", "ttft=9"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["requests"], report["finished"], report["good"]) == (30, 30, 30)
    assert main(["trace", trace]) == 0
    assert "30: 30 finished" in capsys.readouterr().out


def test_trace_writes_a_picture_for_perfetto(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", trace, "--chrome", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"]


def test_explain_says_where_the_time_went(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", trace, "12"]) == 0
    assert capsys.readouterr().out.startswith("request 12: ")
    assert main(["explain", trace, "slowest"]) == 0
    assert "together" in capsys.readouterr().out


def test_replay_of_a_simulated_run_is_equal(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", trace]) == 0
    assert "steps, all plans equal" in capsys.readouterr().out


def test_replay_exits_with_1_at_the_first_difference(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(trace)
    path.write_text(path.read_text().replace('"policy":"fcfs"', '"policy":"longest-first"', 1))
    assert main(["replay", trace]) == 1
    assert "the plan was step" in capsys.readouterr().out


def test_compare_prints_a_table_and_writes_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vary = ["--vary", "policy=fcfs,shortest-first", "--vary", "max-running=2,8"]
    arguments = ["compare", "--workload", WORKLOAD, "--arrivals", "none", *vary]
    assert main([*arguments, "--slo", "ttft=1", "--out", str(tmp_path / "out")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".csv", ".html", ".json", ".svg"]
    assert main([*arguments, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4


def test_compare_says_once_what_it_leaves_out_and_what_a_file_cannot_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"prompt_tokens": length, "output_tokens": 5} for length in (10, 10, 900)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "old.yaml").write_text("model_config: {my_key: 1}")
    run = ["--workload", str(tmp_path / "rows.jsonl"), "--arrivals", "none", "--max-length", "100"]
    vary = ["--vary", "policy=fcfs,shortest-first,longest-first"]
    assert main(["compare", *run, *vary, "--config", str(tmp_path / "old.yaml")]) == 0
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "left out 1 requests of more than 100 tokens"
    ]
    assert capsys.readouterr().err.count("model_config.my_key") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["trace", "/no/such"], "/no/such: cannot be read: No such file or directory"),
        (["trace", "TRACE", "--slo", "speed=1"], "slo 'speed=1' is not known"),
        (["trace", "TRACE", "--chrome", "/no/such/file"], "/no/such/file: cannot be written"),
        (["explain", "TRACE", "31"], "request 31 is not in this trace; it has 1 to 30"),
        (["explain", "TRACE", "first"], "REQUEST must be a request's number or `slowest`, got 'first'"),
        (["replay", "/no/such"], "cannot be read"),
        (["compare", "--workload", WORKLOAD, "--vary", "policy=fcfs,none"], "--policy must be one of fcfs"),
        (["compare", "--workload", WORKLOAD, "--vary", "colour=red"], "give NAME=VALUE,VALUE once for each of"),
        (["compare", "--workload", "/no/such"], "/no/such: cannot be read"),
        (["generate", "hi", "--trace", "/no/such/file"], "--trace must be a file in an existing folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([trace if argument == "TRACE" else argument for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("chairlift: error: ") and error.count("\n") == 1
    assert complaint in error


TIRED = """
from chairlift.core.policies.rankings import Fcfs

class Tired(Fcfs):
    def __init__(self, after: int = 200) -> None:
        super().__init__()
        self._left = after

    def first(self, now):
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("tired")
        return super().first(now)
"""


def test_a_rule_that_fails_during_a_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 200 calls: more than its trial makes, fewer than the run."""
    (tmp_path / "tired.py").write_text(TIRED)
    monkeypatch.chdir(tmp_path)
    run = ["--workload", "lengths:prompt=10,output=5-30,count=300", "--max-running", "4"]
    failure = "the policy failed (RuntimeError: tired)"
    assert main(["simulate", *run, "--policy", "tired:Tired"]) == 0
    out = capsys.readouterr().out
    assert f"replaced      {failure}" in out and "300: 300 finished" in out
    assert main(["simulate", *run, "--policy", "tired:Tired", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rule_failures"] == [failure]
    assert main(["compare", *run, "--vary", "policy=fcfs,tired:Tired"]) == 0
    warning = f"chairlift: warning: tired:Tired: {failure}; the plain rule replaced it\n"
    assert capsys.readouterr().err == warning
