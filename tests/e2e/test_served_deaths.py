"""Processes of a server are killed under streams, alone and in pairs, and told to stop all at once."""

import contextlib
import json
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from chairlift.server.sockets.listen import listen
from fakes.patience import HANG_S, wait_until
from fakes.served import Served, serve

pytestmark = pytest.mark.slow

LONG: dict[str, Any] = {"prompt": "Hi", "max_tokens": 400, "ignore_eos": True, "stream": True}
ENDLESS = LONG | {"max_tokens": 90_000}
NUM_STREAMS = 6


@contextmanager
def serving(model: Path, log: Path, num_front_ends: int, *options: object, **more: Any) -> Iterator[Served]:
    fixed = ("--kv-memory", "64MiB", "--kernels", "torch", "--max-running", NUM_STREAMS, "--frontends", num_front_ends)
    with serve(log, "--model", model, *fixed, *options, **more) as served:
        yield served


class Streams:
    """Requests in flight, each in a thread of its own."""

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        self._begun = [threading.Event() for _ in range(NUM_STREAMS)]
        self._threads = ThreadPoolExecutor(NUM_STREAMS)
        self._answers = [self._threads.submit(self._read, url, body, event) for event in self._begun]
        assert all(event.wait(HANG_S) for event in self._begun)

    def _read(self, url: str, body: dict[str, Any], begun: threading.Event) -> list[str]:
        lines = []
        with (
            contextlib.suppress(httpx.TransportError),
            httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=HANG_S) as response,
        ):
            for line in response.iter_lines():
                begun.set()
                if line:
                    lines.append(line.removeprefix("data: "))
        return lines

    def answers(self) -> list[list[str]]:
        """What each said; those that broke have no end."""
        return [answer.result(HANG_S) for answer in self._answers]


def is_told(answer: list[str]) -> bool:
    if answer[-1] != "[DONE]":
        return False
    error = json.loads(answer[-2])["error"]
    assert error["code"] == "503", error
    assert error["message"] == "the engine went away; try again in a moment"
    return True


def is_free(port: int) -> bool:
    try:
        listen("127.0.0.1", port).close()
    except Exception:
        return False
    return True


@pytest.mark.parametrize(
    ("names", "num_front_ends"),
    [
        (("parent", "engine"), 2),
        pytest.param(("parent",), 2, marks=pytest.mark.nightly),
        pytest.param(("parent",), 1, marks=pytest.mark.nightly),
        pytest.param(("parent", "front end"), 1, marks=pytest.mark.nightly),
    ],
)
def test_when_the_parent_is_killed_streams_are_told_and_nothing_is_left(
    tiny_model: Path, tmp_path: Path, names: tuple[str, ...], num_front_ends: int
) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,  # short: a socket's path has little room
        serving(tiny_model, tmp_path / "log", num_front_ends, environment={"TMPDIR": folder}) as served,
    ):
        children = psutil.Process(served.process.pid).children(recursive=True)
        streams = Streams(served.url, ENDLESS)
        served.kill(*names)
        told = [is_told(answer) for answer in streams.answers()]
        wait_until(lambda: is_free(int(served.url.rpartition(":")[2])))
        assert psutil.wait_procs(children, HANG_S)[1] == []
        assert list(Path(folder).glob("chairlift-*")) == []
    if "front end" not in names:
        assert all(told)
    elif num_front_ends == 1:
        assert not any(told)
    assert "Traceback" not in served.output


@pytest.mark.nightly
def test_an_orphan_ends_though_it_was_stopped(tiny_model: Path, tmp_path: Path) -> None:
    with serving(tiny_model, tmp_path / "log", 2) as served:
        engine, front_ends = served.pids()
        children = [psutil.Process(pid) for pid in (engine, *front_ends)]
        for child in children:
            child.suspend()
        served.process.kill()
        assert psutil.wait_procs(children, HANG_S)[1] == []


@pytest.mark.nightly
@pytest.mark.parametrize("num_front_ends", [2, 1])
def test_when_engine_and_front_end_are_killed_the_streams_of_the_others_go_on(
    tiny_model: Path, tmp_path: Path, num_front_ends: int
) -> None:
    with serving(tiny_model, tmp_path / "log", num_front_ends) as served:
        streams = Streams(served.url, LONG)
        served.kill("engine", "front end")
        ends = [answer[-1] for answer in streams.answers()]
        wait_until(lambda: served.output.count("is ready again after") == 2, lambda: served.output)
        after = httpx.post(f"{served.url}/v1/completions", json=LONG | {"stream": False}, timeout=HANG_S)
    assert after.json()["usage"]["completion_tokens"] == 400
    assert num_front_ends == 2 or "[DONE]" not in ends
    assert "error" not in "".join(ends)


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_drains_like_one_to_the_parent(tiny_model: Path, tmp_path: Path, number: int) -> None:
    with serving(tiny_model, tmp_path / "log", 2, is_group=True) as served:
        streams = Streams(served.url, LONG | {"stream_options": {"include_usage": True}})
        os.killpg(served.process.pid, number)
        answers = streams.answers()
        assert served.process.wait(HANG_S) == 0
    for *_, usage, done in answers:
        assert (json.loads(usage)["usage"]["completion_tokens"], done) == (400, "[DONE]")
    assert "again" not in served.output
    assert "Traceback" not in served.output
