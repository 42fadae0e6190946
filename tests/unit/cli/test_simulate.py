import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.telemetry.trace import Trace

LENGTHS = "lengths:prompt=8-40,output=1-20,count=50"


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "workload.jsonl"
    lines = [{"prompt_tokens": 10 + i, "output_tokens": 1 + i, "arrival_s": 0.01 * i} for i in range(30)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["simulate", "--json", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert isinstance(report, dict)
    return report


def test_the_json_object_has_the_figures(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = figures(capsys, "--workload", workload)
    assert {"steps", "total_s", "requests", "finished", "ttft_s", "tpot_s", "profile", "workload"} <= set(report)
    assert (report["requests"], report["finished"], report["output_tokens"]) == (30, 30, 30 * 31 // 2)
    for name in ("ttft_s", "tpot_s"):
        spread = report[name]
        assert isinstance(spread, dict)
        assert 0 < spread["p50"] <= spread["p90"] <= spread["p99"]


def test_the_table_is_for_people(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", workload]) == 0
    lines = capsys.readouterr()
    assert "30 finished" in lines.out
    assert any(line.startswith("ttft") for line in lines.out.splitlines())
    assert lines.err == ""


def test_options_reach_the_run(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    everything = figures(capsys, "--workload", workload, "--arrivals", "none")
    alone = figures(capsys, "--workload", workload, "--arrivals", "none", "--max-running", "1")
    assert alone["steps"] == 30 * 31 // 2
    assert everything["steps"] == 30
    assert figures(capsys, "--workload", workload, "--limit", "3")["requests"] == 3
    assert figures(capsys, "--workload", workload, "--divide-lengths", "1000")["output_tokens"] == 30
    small = ("--workload", workload, "--arrivals", "none", "--num-blocks", "12", "--block-size", "8")
    assert figures(capsys, *small)["preemptions"] != 0
    assert figures(capsys, *small, "--preemption", "swap")["swaps"] != 0
    assert figures(capsys, *small, "--admission", "reserve")["preemptions"] == 0
    assert figures(capsys, "--workload", workload, "--slo", "ttft=1")["good"] == 30


def test_rules_change_the_order(capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--workload", LENGTHS, "--max-running", "4")
    steps = {p: figures(capsys, *few, "--policy", p)["steps"] for p in ("fcfs", "longest-first")}
    assert steps["longest-first"] != steps["fcfs"]
    assert figures(capsys, *few, "--prefill", "static")["steps"] != steps["fcfs"]


def test_the_seed_decides_what_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = ("--workload", LENGTHS, "--arrivals", "poisson:rate=50")
    assert figures(capsys, *drawn, "--seed", "1") == figures(capsys, *drawn, "--seed", "1")
    assert figures(capsys, *drawn, "--seed", "1") != figures(capsys, *drawn, "--seed", "2")


def test_prompts_are_counted_and_share_their_prefix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("".join(f"{'the same long beginning of all ' * 40}{i}\n" for i in range(3)))
    one_by_one = ("--arrivals", "constant:rate=0.01", "--output-tokens", "5")
    report = figures(capsys, "--workload", str(path), *one_by_one)
    assert report["output_tokens"] == 15
    assert report["cache_hit_tokens"] == 480


def test_a_trace_is_written(tmp_path: Path, workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.jsonl"
    figures(capsys, "--workload", workload, "--trace", str(path), "--policy", "longest-first")
    trace = Trace(path)
    assert (trace.header.clock, trace.header.rules.policy) == ("virtual", "longest-first")
    assert sum(getattr(line, "finish", None) is not None for line in trace) == 30


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--arrivals", "soon"], "--arrivals 'soon' is not known; there are: trace"),
        (["--policy", "best"], "--policy must be one of fcfs"),
        (["--profile", "h100"], "profile h100: no such file; built in are:"),
        (["--model", "other"], "profile h200-llama2-7b is of model Llama-2-7B, not of other"),
        (["--limit", "0"], "--limit must be a whole number between 1"),
        (["--divide-lengths", "none"], "--divide-lengths must be a number above 0, got 'none'"),
        (["--seed", "-1"], "--seed must be a whole number"),
        (["--slo", "latency=3"], "--slo 'latency=3' is not known"),
        (["--slo", "ttft_p99=3"], "no percentiles"),
        (["--num-blocks", "2", "--kv-memory", "1MiB"], "give one of them"),
        (["--kv-memory", "1MiB"], "num_blocks must be at least 1"),
        (["--num-blocks", "2"], "in the whole KV cache of"),
        (["--max-model-len", "20"], "--divide-lengths makes requests shorter, --max-model-len the context longer"),
        (["--trace", "/no/such/folder/file"], "--trace must be a file in an existing folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--workload", workload, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("chairlift: error: ")
    assert complaint in error
    assert error.count("\n") == 1


def test_a_bad_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w").write_text('{"prompt_tokens": 1, "output_tokens": 1}\n{"prompt_tokens": 1}\n')
    assert main(["simulate", "--workload", str(tmp_path / "w")]) == 2
    assert "w, line 2: output_tokens must be" in capsys.readouterr().err


def test_the_counting_tokenizer_is_not_an_engine_option(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures(capsys, "--workload", workload, "--tokenizer", "llama2")["finished"] == 30


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_nothing_is_said_of_a_model_that_is_not_loaded(
    command: str, workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "llama.yaml"
    path.write_text("serving_config: {server_port: 1}\ntokenizer: {vocab_file: nowhere.model}")
    assert main([command, "--workload", workload, "--config", str(path)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "--workload is missing: a file, contest, or lengths:"),
        (("--workload", "contests"), "contests: no such file (did you mean contest?)"),
        (("--workload", "length:prompt=1,output=1,count=1"), "no such file (did you mean lengths?)"),
        (("--workload", "nowhere.json"), "nowhere.json: cannot be read"),
    ],
)
def test_a_workload_that_is_not_there_is_one_line(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_requests_of_a_lost_replica_go_on_in_others(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = figures(capsys, "--workload", workload, "--replicas", "2", "--events", "0.1s lose 0, 0.2s add 0")
    assert report["finished"] == 30 and report["output_tokens"] == 30 * 31 // 2
    assert report["moves"] != 0


def test_replicas_are_added_by_load(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    busy = ("--workload", LENGTHS.replace("count=50", "count=600"), "--arrivals", "constant:rate=400")
    few = figures(capsys, *busy, "--replicas", "1", "--autoscale", "1-1")
    more = figures(capsys, *busy, "--replicas", "1", "--autoscale", "1-4:target=64,start=0,up=0")
    assert isinstance(few["replica_s"], float) and isinstance(more["replica_s"], float)
    assert more["replica_s"] > 1.2 * few["replica_s"]


def test_events_that_cannot_be_are_refused_in_one_line(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", workload, "--replicas", "2", "--events", "1s lose 2"]) == 2
    assert capsys.readouterr().err == "chairlift: error: --events 1s lose 2: replicas are numbered from 0 to 1\n"


def test_roles_move_all_requests_of_more_than_one_token(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--workload", workload, "--replicas", "3")
    alike, split = figures(capsys, *asked), figures(capsys, *asked, "--roles", "prefill:1,decode:2")
    assert (alike["moves"], split["output_tokens"]) == (0, alike["output_tokens"])
    assert (split["requests"], split["moves"], split["kv_moves"]) == (30, 29, 29)


def test_memory_of_the_host_that_holds_no_block_is_refused(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", "--workload", workload, "--replicas", "2", "--roles", "prefill:1,decode:1"]
    assert main([*asked, "--host-memory", "1000"]) == 2
    assert "does not hold one block of" in capsys.readouterr().err
