"""A server that writes its trace: what it did can be told and planned again, even of an engine that was killed."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from chairlift.lab.sim.replay import replay
from chairlift.telemetry.breakdown import break_down, slowest
from chairlift.telemetry.explain import in_words
from chairlift.telemetry.trace import Trace, summarize
from fakes.patience import HANG_S, wait_until
from fakes.served import serve

PROMPTS = ["Hello there", "Hello there, you", "Once upon a time", "One", "Hello there, all of you"]


@pytest.mark.nightly
def test_a_served_run_is_recorded_explained_and_planned_the_same_again(tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    options = ("--num-blocks", "40", "--max-running", "3", "--max-step-tokens", "16", "--kernels", "torch")
    rules = ("--policy", "shortest-first", "--prefill", "delay:factor=1", "--trace", path)
    with serve(tmp_path / "log", "--model", tiny_model, *options, *rules) as served:
        ask(served.url, 12)
        with httpx.stream(
            "POST", f"{served.url}/v1/completions", json=body("Hi", 500) | {"stream": True}, timeout=HANG_S
        ) as response:
            next(response.iter_lines())  # and away
        ask(served.url, 1)
        engine, _ = served.pids()
        os.kill(engine, signal.SIGKILL)
        until_it_answers(served.url)
    first, second = Trace(path), Trace(tmp_path / "trace.jsonl.2")
    assert first.header.clock == "wall"
    report = summarize(first)
    assert (report.requests, report.finished, report.aborted) == (14, 13, 1)
    assert summarize(second).finished >= 1
    assert replay(first).difference is None
    assert replay(second).difference is None
    assert "together" in in_words(break_down(first, slowest(first)))


def body(prompt: str, max_tokens: int) -> dict[str, object]:
    return {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}


def ask(url: str, count: int) -> None:
    with ThreadPoolExecutor(4) as pool:
        each = [body(PROMPTS[i % len(PROMPTS)], 5 + 7 * (i % 4)) for i in range(count)]
        answers = list(pool.map(lambda sent: httpx.post(f"{url}/v1/completions", json=sent, timeout=HANG_S), each))
    assert all(answer.status_code == 200 for answer in answers)


def until_it_answers(url: str) -> None:
    asked = {"json": body("Hi", 3), "timeout": HANG_S}
    wait_until(lambda: httpx.post(f"{url}/v1/completions", **asked).status_code == 200)
