"""The engine is killed under answers of every kind: with `--exact` each is the undisturbed one to the last byte."""

import json
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S, wait_until
from fakes.scrapes import Scrape
from fakes.served import Served

pytestmark = pytest.mark.slow

FULL: dict[str, Any] = {"max_tokens": 150, "ignore_eos": True}
LONG = FULL | {"stream": True, "stream_options": {"include_usage": True}}
TEXT = "the lift goes up the hill "
COMPLETIONS = "/v1/completions"
_CHANGING = re.compile(r'"(id|item_id|created|created_at|completed_at|cached_tokens|time_per_token)":("[^"]*"|[\d.]+)')
ASKED: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, LONG | {"prompt": TEXT, "temperature": 0.0}),
    (COMPLETIONS, LONG | {"prompt": TEXT * 9, "temperature": 0.9, "seed": 3}),
    (COMPLETIONS, LONG | {"prompt": [TEXT, TEXT * 3], "n": 2, "seed": 4, "logprobs": 2, "return_token_ids": True}),
    (COMPLETIONS, LONG | {"prompt": TEXT, "seed": 5, "stop": ["zzzz", "qqq"], "frequency_penalty": 0.5}),
    (COMPLETIONS, FULL | {"prompt": TEXT * 2, "seed": 6, "echo": True, "logprobs": 1}),
    (COMPLETIONS, FULL | {"prompt": TEXT, "seed": 7, "n": 2, "best_of": 3}),
    ("/v1/chat/completions", LONG | {"messages": [{"role": "user", "content": TEXT}], "seed": 8, "logprobs": True}),
    ("/v1/responses", {"input": TEXT, "seed": 10, "stream": True, "max_output_tokens": 150}),
    ("/models/llama2/generate_stream", {"inputs": TEXT, "parameters": {"max_new_tokens": 150, "seed": 9}}),
]  # fmt: skip


def answer(url: str, path: str, body: dict[str, Any], has_begun: threading.Event) -> list[str]:
    """Its lines without what differs between answers; sorted by sample, for samples do not wait for each other."""
    lines = []
    with httpx.stream("POST", f"{url}{path}", json=body, timeout=HANG_S) as response:
        for line in response.iter_lines():
            has_begun.set()
            lines.append(_CHANGING.sub("", line))
    assert response.status_code == 200, lines
    return sorted(lines, key=lambda line: re.findall(r'"index":\d+', line)[:1])


def ask_all(served: Served, num_kills: int) -> list[list[str]]:
    begun = [threading.Event() for _ in ASKED]
    with ThreadPoolExecutor(len(ASKED)) as threads:
        asked = zip(ASKED, begun, strict=True)
        answers = [threads.submit(answer, served.url, path, body, event) for (path, body), event in asked]
        for _ in range(num_kills):
            begun[0].wait(HANG_S)
            deaths = served.output.count("the engine died")
            os.kill(served.pids()[0], signal.SIGKILL)
            wait_until(lambda deaths=deaths: served.output.count("the engine is ready again") > deaths)
            time.sleep(0.3)
        return [each.result() for each in answers]


@pytest.mark.nightly
def test_answers_of_every_kind_are_what_they_would_have_been(exact: Served) -> None:
    undisturbed = ask_all(exact, num_kills=0)
    assert ask_all(exact, num_kills=0) == undisturbed
    for (path, body), got, want in zip(ASKED, ask_all(exact, num_kills=2), undisturbed, strict=True):
        assert got == want, (path, body)
    assert "Traceback" not in exact.output


@pytest.mark.nightly
def test_a_kill_inside_a_json_string_changes_nothing(exact: Served) -> None:
    note = {"type": "string", "minLength": 60, "maxLength": 90}
    schema = {"type": "object", "properties": {"note": note, "n": {"enum": [1, 2, 3]}}, "required": ["note", "n"]}
    body = {
        "messages": [{"role": "user", "content": TEXT}],
        "seed": 11,
        "stream": True,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    }

    def told(kills_at: int | None) -> str:
        text = ""
        with httpx.stream("POST", f"{exact.url}/v1/chat/completions", json=body, timeout=HANG_S) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                if kills_at is not None and len(text) >= kills_at:
                    assert '"n"' not in text  # inside of the note
                    os.kill(exact.pids()[0], signal.SIGKILL)
                    kills_at = None
        return text

    undisturbed = told(None)
    found = json.loads(undisturbed)
    assert 60 <= len(found["note"]) <= 90 and found["n"] in (1, 2, 3)
    deaths = exact.output.count("the engine died")
    assert told(30) == undisturbed
    assert exact.output.count("the engine died") == deaths + 1


@pytest.mark.nightly
def test_without_a_seed_and_without_exact_as_many_tokens_come_as_were_asked_for(server: Served) -> None:
    body = LONG | {"prompt": TEXT, "n": 3}
    with httpx.stream("POST", f"{server.url}{COMPLETIONS}", json=body, timeout=HANG_S) as response:
        lines = response.iter_lines()
        next(lines)
        os.kill(server.pids()[0], signal.SIGKILL)
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert events[-1]["usage"]["completion_tokens"] == 450
    assert [choice["finish_reason"] for event in events for choice in event["choices"]].count("length") == 3


def is_running(served: Served) -> bool:
    scrape = Scrape(httpx.get(f"{served.url}/metrics", timeout=HANG_S).text)
    name = "chairlift_requests_running"  # not told of while there is no engine
    return scrape.has(name) and scrape.value(name) > 0


@pytest.mark.nightly
@pytest.mark.parametrize(("how", "status"), [(signal.SIGKILL, 200), (signal.SIGSEGV, 500)])
def test_who_is_alone_when_the_engine_dies_is_blamed_for_crashes_and_not_for_kills(
    exact: Served, how: int, status: int
) -> None:
    """A search says nothing before its end, so no death of these has a token between it and the last."""
    body = {"prompt": TEXT, "use_beam_search": True, "best_of": 16, "max_tokens": 400, "ignore_eos": True}
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(httpx.post, f"{exact.url}{COMPLETIONS}", json=body, timeout=HANG_S)
        for _ in range(2):
            wait_until(lambda: is_running(exact))
            deaths = exact.output.count("the engine is ready again")
            os.kill(exact.pids()[0], how)
            wait_until(lambda deaths=deaths: exact.output.count("the engine is ready again") > deaths)
        answered = asked.result()
    assert answered.status_code == status, answered.text
    assert status == 200 or "ended the engine twice" in answered.json()["error"]["message"]
