"""The load tester against a server that says what it really did."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chairlift.cli.main import main
from fakes.browser import dump, needs_browser, needs_chromium, shoot
from fakes.patience import HANG_S, wait_until
from fakes.scripted_server import Script, ScriptedServer, Served, serving
from fakes.served import Served as OurServer
from fakes.shown_commands import ROOT, blocks, commands

TIMER_ERROR_S = 0.004  # on an idle machine; delays are many times as long


def bench(
    server: ScriptedServer, folder: Path, *arguments: str, api: str = "completions"
) -> tuple[int, dict[str, Any]]:
    for name in ("bench.json", "bench.csv", "bench.html"):  # of the run before
        (folder / name).unlink(missing_ok=True)
    code = main(["bench", "--url", server.url, "--api", api, "--out", str(folder), *arguments])
    return code, json.loads((folder / "bench.json").read_text())


def lengths(tmp_path: Path, outputs: Sequence[int], gap_s: float = 0.0) -> str:
    path = tmp_path / "workload.jsonl"
    rows = [{"prompt_tokens": 5, "output_tokens": num, "arrival_s": gap_s * i} for i, num in enumerate(outputs)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def measured(server: ScriptedServer) -> list[Served]:
    return server.served[1:]  # the first is the trial


def near(spread: dict[str, float], truth: Sequence[float], error_s: float) -> None:
    """Every figure of a distribution, computed another way."""
    expected = {"mean": np.mean(truth), "max": np.max(truth)}
    expected |= {f"p{share}": np.percentile(truth, share) for share in (50, 90, 99)}
    assert spread == pytest.approx(expected, abs=error_s)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("api", ["completions", "chat", "llm-serving"])
def test_every_percentile_is_the_servers_own(api: str, tmp_path: Path) -> None:
    scripts = {n: Script(first_s=0.1 + 0.05 * (n % 7), gap_s=0.05 + 0.015 * (n % 5)) for n in range(3, 15)}
    outputs = [3 + (5 * i) % 12 for i in range(24)]
    with serving(ScriptedServer(scripts)) as server:
        code, result = bench(server, tmp_path, "--workload", lengths(tmp_path, outputs, 0.05), api=api)
    assert code == 0
    figures, served = result["figures"], measured(server)
    assert (figures["sent"], figures["full"], figures["short"], figures["failed"]) == (24, 24, 0, 0)
    assert figures["output_tokens"] == figures["chunks"] == sum(outputs)
    # Where others keep the machine busy, both sides know how late they were.
    error_s = TIMER_ERROR_S + server.max_lag_s + result["client"]["lag_s"]["max"]
    near(figures["ttft_s"], [s.wrote[0] - s.came for s in served], error_s)
    near(figures["tpot_s"], [(s.wrote[-1] - s.wrote[0]) / (len(s.wrote) - 1) for s in served], error_s)
    near(figures["itl_s"], [gap for s in served for gap in np.diff(s.wrote)], error_s)
    near(figures["e2e_s"], [s.wrote[-1] - s.came for s in served], error_s)
    total_s = max(s.wrote[-1] for s in served) - min(s.came for s in served)
    assert figures["total_s"] == pytest.approx(total_s, abs=error_s)
    assert figures["output_tokens_per_s"] == pytest.approx(sum(outputs) / total_s, rel=2 * error_s / total_s)
    # What was asked of the script, too: a clock that runs at another pace would agree with itself.
    near(figures["ttft_s"], [scripts[n].first_s for n in outputs], error_s)


@pytest.mark.nightly
def test_the_first_command_of_its_page_runs_as_it_stands(server: OurServer, capsys: pytest.CaptureFixture[str]) -> None:
    command = next(commands(next(blocks(ROOT / "docs" / "bench.md"))))
    assert "--url" not in command.words  # it is the default, as is the port of make serve
    assert main([*command.words[1:], "--url", server.url, "--vocab-size", "60"]) == 0
    assert "30 full, 0 short, 0 failed" in capsys.readouterr().out


def test_a_command_line_of_vllm_s_runs(server: OurServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--backend", "openai", "--base-url", server.url, "--dataset-name", "random", "--num-prompts", "4"]
    arguments += ["--random-input-len", "8", "--random-output-len", "3", "--max-concurrency", "2", "--save-result"]
    assert main(["bench", "--vocab-size", "60", *arguments, "--result-dir", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "bench.json").read_text())
    assert (result["figures"]["full"], result["figures"]["output_tokens"]) == (4, 12)
    assert result["figures"]["max_concurrency"] <= 2


@pytest.mark.parametrize("api", ["completions", "chat", "llm-serving"])
def test_our_own_server_answers_all(
    api: str, server: OurServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--workload", lengths(tmp_path, [1 + i for i in range(12)]), "--url", server.url, "--api", api]
    assert main(["bench", "--json", "--vocab-size", "60", *arguments]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert (figures["full"] + figures["short"], figures["failed"]) == (12, 0)
    if api != "llm-serving":  # which cannot be told to go on after an end token
        assert figures["output_tokens"] == sum(range(1, 13))


@pytest.mark.parametrize("api", ["completions", "chat", "llm-serving"])
def test_lost_and_short_answers_are_counted_exactly(api: str, tmp_path: Path) -> None:
    scripts = {
        10: Script(num_tokens=4),
        11: Script(status=503),
        12: Script(breaks_at=3),
        13: Script(error_at=2),
        14: Script(closes=True),
        15: Script(breaks_at=0),
    }
    outputs = [9] * 7 + [10] * 5 + [11] * 4 + [12] * 3 + [13] * 2 + [14] * 6 + [15]
    with serving(ScriptedServer(scripts)) as server:
        code, result = bench(server, tmp_path, "--workload", lengths(tmp_path, outputs, 0.002), api=api)
    figures = result["figures"]
    assert code == 1
    assert (figures["sent"], figures["full"], figures["short"], figures["failed"]) == (28, 13, 5, 10)
    assert (figures["cut"], figures["unsent"]) == (0, 0)
    assert figures["failures"].pop("HTTP 503: out of order") == 4
    broken = sum(count for reason, count in figures["failures"].items() if "closed" in reason)
    assert broken == 4
    assert sum(figures["failures"].values()) == 6
    endings = [row["ending"] for row in result["requests"]]
    assert endings == ["full"] * 7 + ["short"] * 5 + ["failed"] * 9 + ["full"] * 6 + ["failed"]


def test_a_server_that_does_not_count_is_counted_by_chunks(tmp_path: Path) -> None:
    with serving(ScriptedServer(default=Script(tells_usage=False))) as server:
        _, result = bench(server, tmp_path, "--workload", lengths(tmp_path, [4, 5]))
    assert not result["figures"]["is_told"]
    assert (result["figures"]["full"], result["figures"]["output_tokens"]) == (2, 9)


def test_what_the_server_speaks_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(ScriptedServer()) as server:
        code, result = bench(server, tmp_path, "--workload", lengths(tmp_path, [3]), api="auto")
    assert code == 0
    assert (result["about"]["api"], result["about"]["model"]) == ("completions", "scripted")
    assert "1: 1 sent, 1 full, 0 short, 0 failed" in capsys.readouterr().out


def test_prompts_are_the_same_in_every_run(tmp_path: Path) -> None:
    def prompts(*more: str) -> list[Any]:
        with serving(ScriptedServer()) as server:
            bench(server, tmp_path, "--workload", lengths(tmp_path, [3, 4]), *more)
            return sorted(s.body["prompt"] for s in measured(server))

    assert prompts() == prompts("--clients", "2") != prompts("--seed", "1")


def test_warm_up_requests_come_first_and_are_not_counted(tmp_path: Path) -> None:
    with serving(ScriptedServer(default=Script(first_s=0.05))) as server:
        _, result = bench(server, tmp_path, "--workload", lengths(tmp_path, [6] * 4), "--warmup", "3")
    assert (result["warm_up"], result["warm_up_failed"], result["figures"]["sent"]) == (3, 0, 4)
    served = measured(server)
    assert len(served) == 7
    assert max(s.wrote[-1] for s in served[:3]) < min(s.came for s in served[3:])
    asked = [s.body["prompt"] for s in served]
    assert not any(prompt in asked[3:] for prompt in asked[:3])


def test_a_closed_loop_keeps_so_many_under_way(tmp_path: Path) -> None:
    with serving(ScriptedServer(default=Script(first_s=0.1))) as server:
        arguments = ("--workload", lengths(tmp_path, [2] * 12), "--arrivals", "closed:concurrency=3", "--clients", "2")
        code, result = bench(server, tmp_path, *arguments)
    assert code == 0
    assert (result["figures"]["full"], result["client"]["clients"]) == (12, 2)
    assert result["figures"]["max_concurrency"] == 3
    served = measured(server)
    under_way = [sum(o.came <= s.came < o.wrote[-1] for o in served) for s in served]
    assert max(under_way) == 3


def test_connections_are_used_again(tmp_path: Path) -> None:
    with serving(ScriptedServer(default=Script(first_s=0.01))) as server:
        bench(server, tmp_path, "--workload", lengths(tmp_path, [2] * 10), "--arrivals", "closed:concurrency=1")
        assert server.num_connections <= 4  # the look at the server, the trial, and one


def test_requests_that_take_too_long_have_failed(tmp_path: Path) -> None:
    with serving(ScriptedServer({5: Script(first_s=30.0)})) as server:
        code, result = bench(server, tmp_path, "--workload", lengths(tmp_path, [3, 5]), "--timeout", "3")
    assert code == 1
    assert result["figures"]["failures"] == {"not answered within 3 s": 1}


def test_goodput_counts_what_was_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(ScriptedServer({3: Script(first_s=2.5), 4: Script(first_s=0.0)})) as server:
        code, result = bench(server, tmp_path, "--workload", lengths(tmp_path, [3, 3, 4]), "--slo", "ttft=2")
        assert (code, result["figures"]["good"]) == (0, 1)
        code, result = bench(server, tmp_path, "--workload", lengths(tmp_path, [4, 4]), "--slo", "ttft=0.0000001")
        assert (code, result["figures"]["good"]) == (1, 0)
    assert "no request was answered in full within ttft=1e-07" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    with serving(ScriptedServer()) as server:
        arguments = ["--url", server.url, "--workload", lengths(tmp_path, [3, 3]), "--out", str(tmp_path / "taken")]
        assert main(["bench", *arguments]) == 2
        assert measured(server) == []
    assert "taken: cannot be written: File exists" in capsys.readouterr().err


def test_the_files_of_another_run_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "bench.json").write_text("mine")
    with serving(ScriptedServer()) as server:
        arguments = ["--url", server.url, "--workload", lengths(tmp_path, [3, 3]), "--out", str(tmp_path / "out")]
        assert main(["bench", *arguments]) == 2
        assert measured(server) == []
    assert "bench.json of another run is there; name another folder" in capsys.readouterr().err
    assert (tmp_path / "out" / "bench.json").read_text() == "mine"


@pytest.mark.parametrize("arrivals", ["trace", "closed:concurrency=2"])
def test_a_server_that_dies_leaves_what_was_measured(
    arrivals: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chairlift.lab.bench.run.GONE_AFTER_S", 0.5)
    num_answered = 0

    def hear(count: int) -> None:
        nonlocal num_answered
        if count == 12:
            num_answered = sum(len(s.wrote) == 3 for s in measured(server))
            server.die()

    with serving(ScriptedServer(default=Script(first_s=0.02))) as server:
        server.on_request = hear
        workload = lengths(tmp_path, [3] * 500, 0.05)
        code, result = bench(server, tmp_path, "--workload", workload, "--arrivals", arrivals)
    figures = result["figures"]
    assert code == 1
    assert result["partial"] == "the server accepted no connection for 0.5 s"
    assert figures["full"] == num_answered > 0
    assert figures["failed"] >= 1
    assert figures["unsent"] > 400
    assert sum(figures[name] for name in ("full", "short", "failed", "cut", "unsent")) == 500
    assert "Partial: the server accepted no connection" in (tmp_path / "bench.html").read_text()


def test_ctrl_c_writes_what_was_measured(tmp_path: Path) -> None:
    with serving(ScriptedServer({4: Script(first_s=60.0)}, Script(first_s=0.02))) as server:
        command = [sys.executable, "-m", "chairlift", "bench", "--url", server.url, "--out", str(tmp_path)]
        command += ["--workload", lengths(tmp_path, [3] * 10 + [4] * 5 + [3] * 500, 0.05)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        wait_until(lambda: len(server.served) > 20)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
        out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, err
    assert b"PARTIAL" in out
    assert b"Traceback" not in err
    result = json.loads((tmp_path / "bench.json").read_text())
    figures = result["figures"]
    assert result["partial"] == "it was interrupted"
    assert figures["full"] >= 10
    assert figures["cut"] >= 5
    assert figures["sent"] == figures["full"] + figures["cut"]
    assert figures["sent"] + figures["unsent"] == 515


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that says what is wrong."""
    assert main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_mistakes_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = lengths(tmp_path, [3])
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    unused = f"http://127.0.0.1:{port}"
    assert "cannot be reached: connection refused" in refused(capsys, "--url", unused, "--workload", workload)
    assert "--workload is missing" in refused(capsys, "--url", unused)
    assert "--slo 'ttft=-1'" in refused(capsys, "--workload", workload, "--slo", "ttft=-1")
    assert "--timeout" in refused(capsys, "--workload", workload, "--timeout", "0")
    assert "to be kept" in refused(capsys, "--workload", "lengths:prompt=9,output=9,count=3", "--max-length", "8")
    assert "--clients" in refused(capsys, "--workload", workload, "--clients", "0")
    with serving(ScriptedServer()) as server:
        ours = ("--url", server.url, "--workload", workload)
        wrong = refused(capsys, "--url", f"{server.url}/elsewhere", "--workload", workload)
        assert "has neither /v1/models (HTTP 404: nothing here)" in wrong
        assert "takes text alone" in refused(capsys, *ours, "--api", "chat", "--prompts", "ids")
        assert "--adapters: the llm-serving" in refused(capsys, *ours, "--api", "llm-serving", "--adapters", "a")
        (tmp_path / "bad.jsonl").write_text('{"prompt_tokens": 3, "output_tokens": 1}\n{"prompt_tokens": "x"}\n')
        assert "line 2" in refused(capsys, "--url", server.url, "--workload", str(tmp_path / "bad.jsonl"))
    assert server.served == []


def test_a_route_that_does_not_answer_ends_the_run_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = ("--workload", lengths(tmp_path, [3] * 50))
    with serving(ScriptedServer(default=Script(status=404))) as server:
        said = refused(capsys, "--url", server.url, *workload)
    assert "/v1/completions does not answer a request of this workload to 'scripted': HTTP 404: out of order" in said
    assert len(server.served) == 1
    with serving(ScriptedServer()) as server:
        said = refused(capsys, "--url", f"{server.url}/nowhere", "--api", "completions", "--model", "m", *workload)
    assert "/nowhere/v1/completions does not answer a request of this workload to 'm': HTTP 404: no such route" in said


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    with serving(ScriptedServer(default=Script(first_s=0.1, gap_s=0.01))) as server:
        bench(server, folder, "--workload", lengths(folder, [5 + i % 20 for i in range(60)], 0.02))
    return (folder / "bench.html").as_uri()


@pytest.mark.slow
@needs_chromium
def test_a_browser_draws_the_curves(page: str) -> None:
    document = dump(page)
    assert document.count("<svg") == 8
    assert document.count("<rect") > 20
    assert "nothing was measured" not in document


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("is_dark", "colour"), [(False, (43, 108, 176)), (True, (99, 164, 232))])
def test_a_browser_shows_the_curves(page: str, is_dark: bool, colour: tuple[int, int, int], tmp_path: Path) -> None:
    shoot(page, tmp_path / "page.png", 1200, 1600, is_dark=is_dark)
    _has_colour(tmp_path / "page.png", colour)


def _has_colour(path: Path, colour: tuple[int, int, int]) -> None:
    """The bars are drawn: a good part of the picture has their colour."""
    from PIL import Image

    pixels = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    assert (pixels == colour).all(axis=1).mean() > 0.01
