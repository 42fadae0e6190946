"""An engine that hangs is told of and replaced; with `--exact` the answer is the undisturbed one."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from fakes.patience import HANG_S, wait_until
from fakes.served import Served, serve

pytestmark = pytest.mark.slow

BODY = {"prompt": "the lift goes up", "max_tokens": 300, "ignore_eos": True, "seed": 3, "stream": True}
TIMEOUT_S = 6


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
