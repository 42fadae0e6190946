"""A server's answers, from a small stand-in that answers from a script."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from chairlift.config.version import VERSION
from chairlift.core.errors import ChairliftError, InvalidConfig
from chairlift.lab.verify.batch_served import against_served_batch
from chairlift.lab.verify.opened import PromptSpec
from chairlift.lab.verify.report import Verdict, VerifyReport
from chairlift.lab.verify.served import Served
from chairlift.lab.verify.store import against_folder, save
from chairlift.lab.verify.subject import ServedSubject

SPEC = PromptSpec(num_prompts=4, num_tokens=8)


class StandIn(ThreadingHTTPServer):
    """Its log-probabilities change by `drift` while more than one request is in flight."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, drift: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.drift, self.error = drift, ""
        self.turns = threading.Lock()
        self.num_asked = 0
        self.asked: list[str] = []  # models
        self.adapters: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        answers = {
            "/": {"server": f"chairlift {VERSION}"},
            "/v1/models": {
                "data": [{"id": "stand-in", "max_model_len": 4096}, *({"id": a} for a in self.server.adapters)]
            },
        }
        self._send(answers[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._send({"tokens": list(body["prompt"].encode())})
        elif self.server.error:
            self._send({"error": {"message": self.server.error}}, 400)
        else:
            self._send({"choices": [self._choice(body, i) for i in range(body["n"])]})

    def _choice(self, body: dict[str, Any], index: int) -> dict[str, Any]:
        with self.server.turns:
            self.server.num_asked += 1
            self.server.asked.append(body["model"])
            # The first of each prompt was asked alone.
            drift = self.server.drift if self.server.num_asked > 5 else 0.0
        logprob = -1.0 - sum(body["prompt"]) % 7 - drift
        count = body["max_tokens"]
        scores = {"token_logprobs": [logprob] * count, "top_logprobs": [{"a": -0.5, "b": logprob}] * count}
        return {"index": index, "token_ids": [body["seed"] % 50 + index] * count, "logprobs": scores}

    def _send(self, answer: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def running(drift: float) -> Iterator[StandIn]:
    server = StandIn(drift)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def steady() -> Iterator[StandIn]:
    yield from running(0.0)


@pytest.fixture
def drifting() -> Iterator[StandIn]:
    yield from running(0.001)


def nothing(name: str, done: int, total: int) -> None:
    pass


def verified(url: str, control_url: str | None = None, exact: bool = False) -> VerifyReport:
    return against_served_batch(url, control_url, exact, SPEC, nothing)


def test_a_difference_fails_exact_and_passes_where_nothing_is_promised(drifting: StandIn) -> None:
    report = verified(drifting.url)
    assert report.verdict is Verdict.PASS
    assert report.total.num_differing == report.total.num_rows == 3 * 5 * 8
    assert report.total.max_error == pytest.approx(0.001)
    drifting.num_asked = 0
    assert verified(drifting.url, exact=True).verdict is Verdict.FAIL


def test_no_difference_proves_nothing_without_a_server_that_differs(steady: StandIn, drifting: StandIn) -> None:
    alone = verified(steady.url, exact=True)
    assert alone.verdict is Verdict.NOTHING
    assert "--control-url" in alone.why
    assert verified(steady.url, steady.url, exact=True).verdict is Verdict.NOTHING
    assert verified(steady.url, drifting.url, exact=True).verdict is Verdict.PASS


def test_a_large_difference_fails_in_any_case(drifting: StandIn) -> None:
    drifting.drift = 3.0
    assert verified(drifting.url).verdict is Verdict.FAIL


def test_what_a_server_says_is_stored_and_compared(steady: StandIn, tmp_path: Path) -> None:
    spec = PromptSpec(num_prompts=8, num_tokens=8)
    assert save(tmp_path / "base", ServedSubject(steady.url), spec, nothing).verdict is Verdict.PASS
    assert against_folder(tmp_path / "base", ServedSubject(steady.url), spec, nothing).verdict is Verdict.PASS
    steady.drift = 0.1
    report = against_folder(tmp_path / "base", ServedSubject(steady.url), spec, nothing)
    assert report.verdict is Verdict.FAIL
    assert "log-probabilities are off" in report.why


def test_requests_ask_for_the_model_and_adapters_in_turn(drifting: StandIn) -> None:
    drifting.adapters = ["sql", "chat"]
    report = against_served_batch(drifting.url, None, False, SPEC, nothing, ("chat", "sql"))
    assert report.verdict is Verdict.PASS
    assert drifting.asked[:5] == ["stand-in", "chat", "sql", "chat", "chat"]  # the fourth prompt has two samples
    assert set(drifting.asked[5:]) == {"stand-in", "chat", "sql"}
    assert "3 of 4 requests had adapters (chat 2, sql 1)" in report.to_text()


def test_an_adapter_that_a_server_lacks_is_named_with_those_it_has(steady: StandIn) -> None:
    steady.adapters = ["chat"]
    with pytest.raises(InvalidConfig, match=r"--adapters: http://\S+ has no adapter 'sql'; it has chat"):
        against_served_batch(steady.url, None, False, SPEC, nothing, ("chat", "sql"))
    assert not steady.asked


def test_stored_adapters_are_asked_for_by_name(steady: StandIn, tmp_path: Path) -> None:
    steady.adapters = ["chat"]
    spec = PromptSpec(num_prompts=8, num_tokens=8)
    subject = ServedSubject(steady.url, adapters=("chat",))
    assert save(tmp_path / "base", subject, spec, nothing).verdict is Verdict.PASS
    steady.asked.clear()
    report = against_folder(tmp_path / "base", ServedSubject(steady.url), spec, nothing)
    assert (report.verdict, report.adapters, steady.asked.count("chat")) == (Verdict.PASS, {"chat": 4}, 4)
    steady.adapters.clear()
    with pytest.raises(InvalidConfig, match=r"request 1 has the adapter 'chat', .*; http://\S+ has to serve it"):
        against_folder(tmp_path / "base", ServedSubject(steady.url), spec, nothing)


def test_what_a_server_refuses_is_told_in_its_own_words(steady: StandIn) -> None:
    steady.error = "no room today"
    with pytest.raises(ChairliftError, match="400: no room today"):
        verified(steady.url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "ftp://127.0.0.1:1"])
def test_an_address_without_a_server_is_one_line(url: str) -> None:
    with pytest.raises(ChairliftError, match="no server answers there"):
        Served(url)
