"""Clients that leave, front ends that hang and engines that die, on a server with one seat and two front ends."""

import json
import os
import re
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.served import Served, serve

ENDLESS: dict[str, Any] = {"prompt": "Hi", "max_tokens": 90_000, "ignore_eos": True}
SHORT = {"prompt": "Hello", "max_tokens": 2}


@pytest.fixture(scope="module")
def one_seat(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("server") / "log"
    options = ("--kv-memory", "64MiB", "--max-running", "1", "--frontends", "2", "--kernels", "torch")
    with serve(log, "--model", tiny_model, *options) as served:
        yield served


def events_of(response: httpx.Response) -> Iterator[str]:
    return (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))


def num_waiting(url: str) -> int:
    number: int = json.loads(httpx.get(f"{url}/serving/get_request_numbers").text.removeprefix("data: "))["data"]
    return number


def assert_served_promptly(url: str) -> None:
    """The only seat is free again."""
    began = time.monotonic()
    assert httpx.post(f"{url}/v1/completions", json=SHORT, timeout=10).status_code == 200
    assert time.monotonic() - began < 2


def test_leaving_a_stream_frees_the_seat(one_seat: Served) -> None:
    with httpx.stream("POST", f"{one_seat.url}/v1/completions", json=ENDLESS | {"stream": True}) as response:
        next(events_of(response))
    assert_served_promptly(one_seat.url)


def test_leaving_before_a_full_answer_frees_the_seat(one_seat: Served) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{one_seat.url}/v1/completions", json=ENDLESS, timeout=0.3)
    assert_served_promptly(one_seat.url)


def test_leaving_an_llm_serving_stream_frees_the_seat(one_seat: Served) -> None:
    body = {"inputs": "Hi", "parameters": {"max_new_tokens": 90_000}}
    with httpx.stream("POST", f"{one_seat.url}/models/llama2/generate_stream", json=body) as response:
        next(response.iter_lines())
    assert_served_promptly(one_seat.url)


def test_leaving_the_queue_takes_the_request_out_of_it(one_seat: Served) -> None:
    with httpx.stream("POST", f"{one_seat.url}/v1/completions", json=ENDLESS | {"stream": True}) as response:
        next(events_of(response))
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{one_seat.url}/v1/completions", json=ENDLESS, timeout=0.3)
        deadline = time.monotonic() + 2
        while num_waiting(one_seat.url) != 0:
            assert time.monotonic() < deadline, "the request is still queued"
            time.sleep(0.01)


def test_a_connection_that_breaks_without_a_word_frees_the_seat(one_seat: Served) -> None:
    host, port = one_seat.url.removeprefix("http://").split(":")
    body = json.dumps(ENDLESS | {"stream": True}).encode()
    connection = socket.create_connection((host, int(port)))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    connection.recv(100)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # reset instead of goodbye
    connection.close()
    assert_served_promptly(one_seat.url)


def test_each_front_end_answers_while_the_other_hangs(one_seat: Served) -> None:
    _, front_ends = one_seat.pids()
    assert len(front_ends) == 2
    for hanging in front_ends:
        os.kill(hanging, signal.SIGSTOP)
        try:
            assert_served_promptly(one_seat.url)
        finally:
            os.kill(hanging, signal.SIGCONT)


@pytest.mark.slow
def test_after_a_storm_of_clients_that_leave_every_seat_is_free(server: Served) -> None:
    def come_and_go(index: int) -> None:
        body = ENDLESS | {"prompt": [5] * (1 + index % 50), "n": 1 + index % 3, "stream": index % 4 != 0}
        try:
            with httpx.stream(
                "POST", f"{server.url}/v1/completions", json=body, timeout=0.05 * (index % 7)
            ) as response:
                events = events_of(response)
                for _ in range(index % 20):
                    next(events)
        except httpx.TransportError:
            pass

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(come_and_go, range(80)))
    began = time.monotonic()
    everyone = httpx.post(f"{server.url}/v1/completions", json=SHORT | {"n": 8}, timeout=10)
    assert everyone.status_code == 200
    assert time.monotonic() - began < 2


@pytest.mark.slow
def test_when_the_engine_dies_streams_stay_open_and_newcomers_wait(one_seat: Served) -> None:
    url, body = one_seat.url, ENDLESS | {"stream": True, "max_tokens": 400, "stream_options": {"include_usage": True}}
    engine, _ = one_seat.pids()
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.post(f"{url}/v1/completions", json=SHORT, timeout=60))

    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as response:
        events = events_of(response)
        next(events)
        queued, late = threading.Thread(target=ask), threading.Thread(target=ask)
        queued.start()
        while num_waiting(url) != 1:
            time.sleep(0.01)
        os.kill(engine, signal.SIGKILL)
        while httpx.get(f"{url}/health").status_code == 200:
            time.sleep(0.01)
        late.start()
        *_, usage, done = list(events)
    assert done == "[DONE]"
    assert json.loads(usage)["usage"]["completion_tokens"] == 400
    for thread in (queued, late):
        thread.join(20)
    assert [response.status_code for response in answers] == [200, 200]
    assert "the engine died (killed by SIGKILL); starting it again" in one_seat.output
    assert re.search(r"the engine is ready again after \d+\.\d s", one_seat.output)


@pytest.mark.slow
def test_front_ends_that_die_are_replaced_and_the_seat_is_free(one_seat: Served) -> None:
    url, before = one_seat.url, one_seat.output.count("is ready again after")
    engine, front_ends = one_seat.pids()
    models = httpx.get(f"{url}/v1/models").json()
    with httpx.stream("POST", f"{url}/v1/completions", json=ENDLESS | {"stream": True}, timeout=30) as response:
        events = events_of(response)
        next(events)
        for front_end in front_ends:
            os.kill(front_end, signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            list(events)
    deadline = time.monotonic() + 30
    while one_seat.output.count("is ready again after") < before + 2:
        assert time.monotonic() < deadline, one_seat.output
        time.sleep(0.05)
    assert_served_promptly(url)
    assert one_seat.pids()[0] == engine
    assert httpx.get(f"{url}/v1/models").json() == models  # the server is as old as before
    assert re.search(r"the front end [01] died \(killed by SIGKILL\).*; starting it again", one_seat.output)
    assert re.search(r"front-end-[01] is gone; its requests \(1\) are ended", one_seat.output)


@pytest.mark.slow
def test_a_server_told_to_stop_finishes_the_stream_and_leaves_nothing_behind(tiny_model: Path, tmp_path: Path) -> None:
    with serve(tmp_path / "log", "--model", tiny_model, "--kv-memory", "64MiB", "--kernels", "torch") as served:
        engine, front_ends = served.pids()
        body = ENDLESS | {"stream": True, "max_tokens": 300, "stream_options": {"include_usage": True}}
        with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=30) as response:
            events = events_of(response)
            next(events)
            served.process.send_signal(signal.SIGTERM)
            rest = list(events)
        finished = time.monotonic()
        assert served.process.wait(15) == 0
        assert time.monotonic() - finished < 5
    assert json.loads(rest[-2])["usage"]["completion_tokens"] == 300
    assert rest[-1] == "[DONE]"
    assert "Traceback" not in served.output
    for pid in (engine, *front_ends):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.slow
def test_told_twice_to_stop_a_server_ends_its_streams_with_an_error(tiny_model: Path, tmp_path: Path) -> None:
    with serve(tmp_path / "log", "--model", tiny_model, "--kv-memory", "64MiB", "--kernels", "torch") as served:
        with httpx.stream(
            "POST", f"{served.url}/v1/completions", json=ENDLESS | {"stream": True}, timeout=30
        ) as response:
            events = events_of(response)
            next(events)
            served.process.send_signal(signal.SIGINT)
            while "finishing the requests under way; once more to stop at once" not in served.output:
                next(events)
            served.process.send_signal(signal.SIGINT)
            told = time.monotonic()
            rest = list(events)
        assert served.process.wait(15) == 0
        assert time.monotonic() - told < 5
    error = json.loads(rest[-2])["error"]
    assert error["code"] == 503
    assert error["message"] == "the server is stopping; another one may take this request"
    assert rest[-1] == "[DONE]"
    assert "Traceback" not in served.output


@pytest.mark.slow
def test_a_killed_server_leaves_no_folder_behind(tiny_model: Path, tmp_path: Path) -> None:
    options = ("--model", tiny_model, "--kv-memory", "64MiB", "--kernels", "torch")
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,  # short: a socket's path has little room
        serve(tmp_path / "log", *options, environment={"TMPDIR": folder}) as served,
    ):
        assert list(Path(folder).glob("chairlift-*"))
        served.process.kill()
        deadline = time.monotonic() + 30
        while list(Path(folder).glob("chairlift-*")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
