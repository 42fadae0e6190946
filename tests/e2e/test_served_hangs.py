"""An engine that hangs is told of and replaced; with `--exact` the answer is the undisturbed one. So are front ends:
what they served breaks off, and clients of the others notice nothing."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from fakes.patience import HANG_S, wait_until
from fakes.served import Served, serve
from stress.client import metric
from stress.frozen import BLOCK, HOOK, open_at

pytestmark = pytest.mark.slow

BODY = {"prompt": "the lift goes up", "max_tokens": 300, "ignore_eos": True, "seed": 3, "stream": True}
TIMEOUT_S = 6
SOURCE = Path(__file__).parents[2] / "src"


def text_of(url: str) -> str:
    with httpx.stream("POST", f"{url}/v1/completions", json=BODY, timeout=HANG_S) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return "".join(line.partition('"text":"')[2].partition('"')[0] for line in lines)


def is_running(served: Served) -> bool:
    return "chairlift_requests_running 1" in httpx.get(f"{served.url}/metrics", timeout=HANG_S).text


def health(served: Served) -> httpx.Response:
    return httpx.get(f"{served.url}/health", timeout=HANG_S)


@pytest.mark.nightly
def test_an_engine_that_hangs_is_replaced_whether_it_is_busy_or_not(tiny_model: Path, tmp_path: Path) -> None:
    options = ("--exact", "--kv-memory", "64MiB", "--frontends", "1", "--engine-timeout", TIMEOUT_S)
    with serve(tmp_path / "log", "--model", tiny_model, *options) as served, ThreadPoolExecutor(1) as threads:
        undisturbed = text_of(served.url)
        for num_hangs, is_busy in ((1, True), (2, False)):
            answer = threads.submit(text_of, served.url) if is_busy else None
            wait_until(lambda is_busy=is_busy: is_running(served) == is_busy)
            engine = psutil.Process(served.pids()[0])
            os.kill(engine.pid, signal.SIGSTOP)
            wait_until(lambda: "no sign of life from the engine" in health(served).text)
            wait_until(lambda num=num_hangs: served.output.count("the engine is ready again") >= num)
            assert not engine.is_running()
            assert answer is None or answer.result(HANG_S) == undisturbed
            wait_until(lambda: health(served).status_code == 200)
        assert text_of(served.url) == undisturbed
    assert "the engine died (it hung: no sign of life for 6 s); starting it again" in served.output
    assert "Traceback" not in served.output


@pytest.mark.nightly
async def test_front_ends_that_are_stopped_or_blocked_are_replaced_and_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    options = ("--frontends", "3", "--frontend-timeout", "3", "--threads", "1")
    with serve(tmp_path / "log", *options, environment={"PYTHONPATH": f"{tmp_path}:{SOURCE}"}) as served:
        stopped, blocked, other = fronts = served.pids()[1]
        streams = [
            stream
            for front, max_tokens in ((stopped, 8000), (blocked, 8000), (other, 300))
            for stream in await open_at(served.url, front, fronts, max_tokens)
        ]
        os.kill(stopped, signal.SIGSTOP)
        os.kill(blocked, BLOCK)
        ends = await asyncio.gather(*(stream.end() for stream in streams))
        assert ends == ["broken", "broken", "whole"]
        died = "died (it hung: no sign of life for 3 s) with 1 request in flight; starting it again"
        wait_until(lambda: served.output.count(died) == 2)
        assert other in served.pids()[1]
        wait_until(lambda: metric(served.url, "chairlift_requests_running") == 0)
        name = 'chairlift_requests_total{outcome="failed",reason="front_end_died",route=""}'
        assert metric(served.url, name) == 2
        assert "Traceback" not in served.output
