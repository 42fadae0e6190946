"""What lies outside the steps, from the first tokens of a server that answers after a known time."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from chairlift.core.errors import ChairliftError
from chairlift.lab.sim.calibration import serving_path
from chairlift.lab.sim.calibration.serving_path import FirstToken, arrival_of, first_tokens, first_tokens_at, settle
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.profile import load_profile


class Answering(BaseHTTPRequestHandler):
    lengths: ClassVar[list[int]] = []
    prompts: ClassVar[set[str]] = set()
    slow = 1024  # tokens of a prompt that takes long

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "m", "max_model_len": 2050}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.lengths.append(len(body["prompt"]))
        if len(body["prompt"]) >= self.slow:
            time.sleep(0.6)
        num_cached = len(body["prompt"]) // 16 * 16 if str(body["prompt"]) in self.prompts else 0
        self.prompts.add(str(body["prompt"]))
        usage = json.dumps({"usage": {"prompt_tokens_details": {"cached_tokens": num_cached}}})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"data: {{}}\n\ndata: {usage}\n\ndata: [DONE]\n\n".encode())

    def _answer(self, value: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Answering.lengths.clear()
    Answering.prompts.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_lengths_that_take_long_or_do_not_fit_are_left_out(url: str) -> None:
    found = first_tokens_at(url, (17, 257, 1024, 2048))
    assert [(each.length, each.num_cached) for each in found] == [(17, 16), (257, 256)]
    assert Answering.lengths.count(17) == Answering.lengths.count(257) == 12
    assert Answering.lengths.count(1024) == 2
    assert 2048 not in Answering.lengths


@pytest.mark.parametrize(
    ("seconds", "num_asked"),
    [([0.005] * 40, 7), ([0.015] * 5 + [0.005] * 40, 11), ([0.005, 0.015] * 20, 25), ([0.01] * 6 + [0.005] * 40, 12)],
)
def test_a_new_server_is_left_alone_until_it_is_steady(
    url: str, monkeypatch: pytest.MonkeyPatch, seconds: list[float], num_asked: int
) -> None:
    asked = iter(seconds)
    monkeypatch.setattr(serving_path, "_first_token", lambda *_: FirstToken(17, 0, next(asked)))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    settle(url)
    assert len(list(asked)) == len(seconds) - num_asked


def test_a_server_that_does_not_start_is_told_in_its_own_words() -> None:
    with pytest.raises(ChairliftError, match="did not start.*no-such-option"):
        first_tokens(["--no-such-option"])


@pytest.mark.parametrize("num_left", [1, 10**6])
def test_what_steps_do_not_explain_lies_outside(num_left: int) -> None:
    """Of a server that caches prefixes, and of one that does not."""
    cost = CostModel(linear=((1, 0.010), (1024, 0.030)), kv_token_s=1e-6, start_s=0.001)
    profile = replace(load_profile("h200-llama2-7b"), cost=cost)
    found = []
    for length in (17, 257, 1025):
        num_cached = max(0, length - num_left)
        outside = 0.004 + 2e-6 * length
        found.append(FirstToken(length, num_cached, cost.alone_s(length, num_cached) + cost.start_s + outside))
    assert arrival_of(profile, found) == (pytest.approx(0.004), pytest.approx(2e-6))
    assert arrival_of(profile, ()) == (0.0, 0.0)
    assert arrival_of(profile, [FirstToken(16, 0, 0.001)]) == (0.0, 0.0)
