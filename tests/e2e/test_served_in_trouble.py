"""Clients that leave, front ends that hang and engines that die, where one request runs at a time."""

import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S, wait_until
from fakes.scrapes import Scrape
from fakes.served import Served

pytestmark = pytest.mark.slow

ENDLESS: dict[str, Any] = {"prompt": "Hi", "max_tokens": 90_000, "ignore_eos": True}
SHORT = {"prompt": "Hello", "max_tokens": 2}


def events_of(response: httpx.Response) -> Iterator[str]:
    return (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))


def streaming(url: str) -> AbstractContextManager[httpx.Response]:
    return httpx.stream("POST", f"{url}/v1/completions", json=ENDLESS | {"stream": True}, timeout=HANG_S)


def asking(url: str, *, stream: bool = False) -> socket.socket:
    """A request before any of it is read."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(ENDLESS | {"stream": stream}).encode()
    connection = socket.create_connection((host, int(port)))
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    return connection


def scrape(url: str) -> Scrape:
    return Scrape(httpx.get(f"{url}/metrics", timeout=HANG_S).text)


def num_generated(url: str) -> float:
    return scrape(url).value("chairlift_generated_tokens_total")


def num_waiting(url: str) -> int:
    numbers = httpx.get(f"{url}/serving/get_request_numbers", timeout=HANG_S).text
    number: int = json.loads(numbers.removeprefix("data: "))["data"]
    return number


def assert_none_runs(url: str) -> None:
    """The only one, long before what held it would have had all its tokens."""
    before = num_generated(url)
    assert httpx.post(f"{url}/v1/completions", json=SHORT, timeout=HANG_S).status_code == 200
    assert num_generated(url) - before < ENDLESS["max_tokens"] / 2


def test_leaving_a_stream_ends_the_request(one_running: Served) -> None:
    with streaming(one_running.url) as response:
        next(events_of(response))
    assert_none_runs(one_running.url)


def test_leaving_before_a_full_answer_ends_the_request(one_running: Served) -> None:
    with asking(one_running.url):
        wait_until(lambda: scrape(one_running.url).value("chairlift_requests_running") == 1)
    assert_none_runs(one_running.url)


def test_leaving_an_llm_serving_stream_ends_the_request(one_running: Served) -> None:
    body = {"inputs": "Hi", "parameters": {"max_new_tokens": 90_000}}
    url = f"{one_running.url}/models/llama2/generate_stream"
    with httpx.stream("POST", url, json=body, timeout=HANG_S) as response:
        next(response.iter_lines())
    assert_none_runs(one_running.url)


def test_leaving_the_queue_takes_the_request_out_of_it(one_running: Served) -> None:
    with streaming(one_running.url) as response:
        events = events_of(response)  # kept: the response is closed with it
        next(events)
        with asking(one_running.url):
            wait_until(lambda: num_waiting(one_running.url) == 1)
        wait_until(lambda: num_waiting(one_running.url) == 0)


def test_a_connection_that_breaks_without_a_word_ends_the_request(one_running: Served) -> None:
    connection = asking(one_running.url, stream=True)
    connection.recv(100)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # reset instead of goodbye
    connection.close()
    assert_none_runs(one_running.url)


def test_each_front_end_answers_while_the_other_hangs(one_running: Served) -> None:
    _, front_ends = one_running.pids()
    assert len(front_ends) == 2
    for hanging in front_ends:
        os.kill(hanging, signal.SIGSTOP)
        try:
            assert_none_runs(one_running.url)
        finally:
            os.kill(hanging, signal.SIGCONT)


@pytest.mark.nightly
def test_after_a_storm_of_clients_that_leave_no_request_runs(server: Served) -> None:
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
    before = num_generated(server.url)
    everyone = httpx.post(f"{server.url}/v1/completions", json=SHORT | {"n": 8}, timeout=HANG_S)
    assert everyone.status_code == 200
    assert num_generated(server.url) - before < ENDLESS["max_tokens"] / 2


def test_when_the_engine_dies_streams_stay_open_and_newcomers_wait(one_running: Served) -> None:
    url, body = (
        one_running.url,
        ENDLESS | {"stream": True, "max_tokens": 400, "stream_options": {"include_usage": True}},
    )
    engine, _ = one_running.pids()
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.post(f"{url}/v1/completions", json=SHORT, timeout=HANG_S))

    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=HANG_S) as response:
        events = events_of(response)
        next(events)
        queued, late = threading.Thread(target=ask), threading.Thread(target=ask)
        queued.start()
        wait_until(lambda: num_waiting(url) == 1)
        os.kill(engine, signal.SIGKILL)
        wait_until(lambda: httpx.get(f"{url}/health", timeout=HANG_S).status_code != 200)
        late.start()
        *_, usage, done = list(events)
    assert done == "[DONE]"
    assert json.loads(usage)["usage"]["completion_tokens"] == 400
    for thread in (queued, late):
        thread.join(HANG_S)
    assert [response.status_code for response in answers] == [200, 200]
    assert "the engine died (killed by SIGKILL); starting it again" in one_running.output
    assert re.search(r"the engine is ready again after \d+\.\d s", one_running.output)


def test_front_ends_that_die_are_replaced_and_their_requests_end(one_running: Served) -> None:
    url, before = one_running.url, one_running.output.count("is ready again after")
    engine, front_ends = one_running.pids()
    models = httpx.get(f"{url}/v1/models", timeout=HANG_S).json()
    with streaming(url) as response:
        events = events_of(response)
        next(events)
        for front_end in front_ends:
            os.kill(front_end, signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            list(events)
    wait_until(lambda: one_running.output.count("is ready again after") >= before + 2, lambda: one_running.output)
    assert_none_runs(url)
    assert one_running.pids()[0] == engine
    assert httpx.get(f"{url}/v1/models", timeout=HANG_S).json() == models  # the server is as old as before
    assert re.search(r"the front end [01] died \(killed by SIGKILL\).*; starting it again", one_running.output)
    assert re.search(r"front-end-[01] is gone; its requests \(1\) are ended", one_running.output)
