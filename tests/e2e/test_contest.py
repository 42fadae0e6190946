"""The contest's client against a server in the original wire format, and against our own."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fakes.http_world import HttpWorld
from fakes.llm_serving import Original
from fakes.patience import HANG_S, wait_until
from fakes.served import Served, _environment, chairlift

WORDS = ("red", "green", "blue", "black", "white")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "alpaca.json"
    path.write_text(json.dumps([{"instruction": word, "input": "", "output": "one two three four"} for word in WORDS]))
    return path


def contest(tmp_path: Path, port: int, *more: object, rate: object = 250, seconds: int = 1) -> Any:
    return chairlift("contest", "-X", rate, "-P", port, "-O", "out", "-T", seconds, *more, folder=tmp_path)


def files(tmp_path: Path, rate: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    results = json.loads((tmp_path / "out" / f"result_{rate}_x.json").read_text())
    [summary] = (tmp_path / "testLog").glob(f"summary_{rate}_x_*.json")
    # The contest's count.py reads all that is there.
    assert [path.name for path in (tmp_path / "out").iterdir()] == [f"result_{rate}_x.json"]
    return results, json.loads(summary.read_text())


def as_the_original(port: int, prompt: str, max_new_tokens: int, has_lists: bool = True) -> dict[str, Any] | None:
    """What the original's thread makes of a request; None where it dies."""
    parameters = {"max_new_tokens": max_new_tokens, "do_sample": "False", "return_full_text": "True"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    began, first = time.monotonic(), None
    try:
        body = json.dumps({"inputs": prompt, "parameters": parameters})
        connection.request("POST", "/models/llama2/generate_stream", body, {"Connection": "close"})
        for line in connection.getresponse():
            data = json.loads(line)["data"]
            text = (data[0] if has_lists else data)["generated_text"]
            first = first or time.monotonic() - began
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return {"input": prompt, "resp_text": text, "res_time": time.monotonic() - began, "first_token_time": first}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("has_lists", [True, False])
def test_results_are_those_of_the_original_client(tmp_path: Path, data: Path, has_lists: bool) -> None:
    with Original({"green": "short", "black": "error304"}, has_lists=has_lists).on_a_port() as port:
        done = contest(tmp_path, port, "--data", data, rate=5)
        asked = json.loads(json.dumps([as_the_original(port, word, 4, has_lists) for word in WORDS]))
    results, summary = files(tmp_path, "5.0")
    assert [list(result) for result in results] == [list(result) for result in asked]
    by_prompt = {result["input"]: result["resp_text"] for result in results}
    assert by_prompt == {result["input"]: result["resp_text"] for result in asked}
    assert all(0 < result["first_token_time"] <= result["res_time"] for result in results)
    assert (summary["sent"], summary["full"], summary["short"], summary["lost"]) == (5, 3, 1, 1)
    assert summary["lost_requests"] == [
        {
            "index": 3, "input": "black",
            "reason": "predict_failed: error304: generation task stop abnormally!, please retry!",
        }
    ]  # fmt: skip
    assert done.returncode == 1


def test_a_task_sends_the_file_of_the_folder_and_says_who_stores_logits(tmp_path: Path, data: Path) -> None:
    data.rename(tmp_path / "alpaca_521.json")
    original = Original()
    with original.on_a_port() as port:
        done = chairlift("contest", "--task", 2, "-X", 5, "-T", 1, "-P", port, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(body["inputs"] for body in original.bodies) == sorted(WORDS)
    assert (tmp_path / "result_5.0_x.json").is_file()
    assert "stores logits with `serve --save-logits DIR` alone" in done.stderr


def test_the_last_line_and_the_log_are_the_original_s(tmp_path: Path, data: Path) -> None:
    original = Original()
    with original.on_a_port() as port:
        done = contest(tmp_path, port, "--data", data)
    assert done.returncode == 0, done.stderr
    *_, counts, last = done.stdout.splitlines()
    assert counts.endswith("250 of 250 requests sent: 250 answered in full, 0 short, 0 lost")
    assert re.fullmatch(r"All Tasks Done; Exec Time is \d+\.\d+", last)
    [log] = (tmp_path / "testLog").glob("test_performance_*.log")
    assert re.fullmatch(r"test_performance_\d{4}-\d\d-\d\d-\d\d_\d\d\.log", log.name)
    lines = log.read_text().splitlines()
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - test_llama\.log - INFO - "
    for number, said in enumerate(("testcases length is 5", "thread_tasks length is 250")):
        assert re.fullmatch(stamp + said, lines[number])
    assert re.fullmatch(stamp + r"Start send request, avg interval is 0\.0", lines[2])
    assert re.fullmatch(stamp + r"poisson random interval time is 0\.000s", lines[3])
    assert "Test Progress --> 250/250" in lines
    assert re.fullmatch(stamp + re.escape(last), lines[-1])
    assert len(original.bodies) == 250
    assert original.bodies[5]["inputs"] in WORDS
    assert all(b"\r\nConnection: close\r\n" in head for head in original.headers)


def test_what_the_original_loses_in_silence_is_counted(tmp_path: Path, data: Path) -> None:
    script = {"red": "ping", "green": "breaks", "blue": "closes"}
    with Original(script).on_a_port() as port:
        done = contest(tmp_path, port, "--data", data, rate=5)
        assert [as_the_original(port, word, 4) is None for word in ("red", "blue", "black")] == [True, True, False]
    results, summary = files(tmp_path, "5.0")
    # A ping is no answer, and no reason to lose one.
    assert (summary["sent"], summary["full"], summary["lost"]) == (5, 3, 2)
    assert {lost["input"] for lost in summary["lost_requests"]} == {"green", "blue"}
    assert {result["input"] for result in results} == {"red", "green", "black", "white"}
    assert "2 lost" in done.stdout
    assert "closed" in done.stderr
    assert done.returncode == 1


def test_a_server_that_dies_ends_the_run_and_what_came_is_kept(tmp_path: Path, data: Path) -> None:
    with Original({"blue": "dies"}).on_a_port() as port:
        done = contest(tmp_path, port, "--data", data, rate=5, seconds=60)
    results, summary = files(tmp_path, "5.0")
    assert done.returncode == 1
    assert len(results) == 2
    assert summary["is_partial"]
    assert summary["planned"] == 300
    assert summary["sent"] < 10
    assert "cannot connect" in summary["stopped"]
    assert "partial: cannot connect" in done.stdout


def test_an_interruption_writes_what_was_measured(tmp_path: Path, data: Path) -> None:
    with Original(line_s=0.01).on_a_port() as port:
        command = [sys.executable, "-m", "chairlift", "contest", "-X", "10", "-P", str(port), "-T", "60"]
        run = subprocess.Popen(
            [*command, "-O", "out", "--data", str(data)], env=_environment(), stdout=subprocess.PIPE, cwd=tmp_path
        )
        log = tmp_path / "testLog"
        wait_until(lambda: any("Test Progress" in path.read_text() for path in log.glob("*")))
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=HANG_S)
    results, summary = files(tmp_path, "10.0")
    assert run.returncode == 130
    assert results
    assert (summary["is_partial"], summary["stopped"]) == (True, "interrupted")
    assert b"partial: interrupted" in out


def test_no_server_and_a_wrong_route_are_one_line(tmp_path: Path, data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = contest(tmp_path, port, "--data", data)
    assert done.returncode == 2
    assert "cannot be reached" in done.stderr
    with Original(route="/v1/completions").on_a_port() as port:
        done = contest(tmp_path, port, "--data", data)
    assert done.returncode == 2
    assert "has no /models/llama2/generate_stream (HTTP 404)" in done.stderr
    assert done.stderr.count("\n") == 2  # the other is the tokenizer's warning


def test_our_own_server_speaks_to_it(tmp_path: Path, data: Path) -> None:
    says = "Hello world"
    world = HttpWorld(says)
    with world.on_a_port() as url:
        done = contest(tmp_path, int(url.rpartition(":")[2]), "--data", data, rate=5)
    results, summary = files(tmp_path, "5.0")
    assert done.returncode == 0, done.stderr
    assert (summary["sent"], summary["lost"]) == (5, 0)
    assert {result["resp_text"] for result in results} <= {says[: len(says) - cut] for cut in range(len(says))}


@pytest.mark.nightly
def test_a_real_server_answers_synthetic_prompts_of_the_contest_in_full(server: Served, tmp_path: Path) -> None:
    port = int(server.url.rpartition(":")[2])
    done = contest(tmp_path, port, rate=8, seconds=1)
    assert done.returncode == 0, done.stderr
    results, summary = files(tmp_path, "8.0")
    assert summary["sent"] == summary["full"] + summary["short"] == len(results) == 8
