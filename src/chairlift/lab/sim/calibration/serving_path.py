"""Times the first tokens of an idle server, so that the time outside the steps is known: HTTP, reading the prompt, the
way to the engine and back.

A prompt is sent again and again: where prefixes are cached, all but its last tokens are, and what takes longer with its
length is the way alone. Prompts are token ids. Starts `chairlift serve` in processes of its own and ends it; nothing of
the model stays.
"""

import http.client
import json
import math
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from chairlift.core.errors import ChairliftError
from chairlift.lab.sim.calibration.fit import non_negative_least_squares
from chairlift.lab.sim.profile import Profile

LENGTHS = (17, 257, 1025, 2049, 4097, 8193)  # tokens of the prompts: one after the last block
_NUM_WARM, _NUM_TIMED = 3, 9
# A server that is new prepares steps while it is idle, which delays what arrives: it is left alone until some first
# tokens in a row are as fast as any.
_NUM_ALIKE, _ALIKE = 6, 1.15
_PAUSE_S, _MAX_PAUSES = 0.4, 25
_LONG_S, _FIRST_LONG_S = 0.5, 4.0  # of a prompt that came before, and of one that did not
_TIMEOUT_S = 120.0
_MAX_TOKEN = 1000  # any vocabulary has as many


class FirstToken(NamedTuple):
    length: int  # tokens of the prompt
    num_cached: int
    seconds: float  # until it came, the median


FirstTokens = Sequence[FirstToken]


def first_tokens(arguments: Sequence[str], lengths: Sequence[int] = LENGTHS) -> FirstTokens:
    """Of a server with these arguments; raises `ChairliftError` if it does not start or answer. Without lengths that it
    does not take, or takes long for."""
    with serving(arguments) as url:
        settle(url)
        return first_tokens_at(url, lengths)


def first_tokens_at(url: str, lengths: Sequence[int] = LENGTHS) -> FirstTokens:
    card = _card(url)
    model, longest = str(card["id"]), int(str(card.get("max_model_len") or 0)) - 2
    found: list[FirstToken] = []
    limits = (math.inf, math.inf)  # the first length counts, however long it takes
    for length in lengths:
        # What is outside the steps is lost in the noise of long ones.
        if length > longest or any(_first_token(url, model, length, 0).seconds > most for most in limits):
            break
        tokens = [_first_token(url, model, length, 0) for _ in range(2, _NUM_WARM + _NUM_TIMED)]
        seconds = statistics.median(token.seconds for token in tokens[_NUM_WARM - 2 :])
        found.append(tokens[-1]._replace(seconds=seconds))
        limits = _FIRST_LONG_S, _LONG_S
    return found


def settle(url: str) -> None:
    """Until the server has prepared what it prepares, or for some seconds."""
    model = str(_card(url)["id"])
    seconds: list[float] = []
    for turn in range(_MAX_PAUSES):
        time.sleep(_PAUSE_S)
        seconds.append(_first_token(url, model, LENGTHS[0], 1 + turn).seconds)
        if len(seconds) > _NUM_ALIKE and max(seconds[-_NUM_ALIKE:]) < _ALIKE * min(seconds):
            return


def arrival_of(profile: Profile, found: FirstTokens) -> tuple[float, float]:
    """`arrival_s` and `arrival_token_s`: what first tokens took beyond their steps."""
    cost = profile.cost
    times = [each for each in found if each.length - each.num_cached <= profile.max_step_tokens]
    if not times:
        return 0.0, 0.0
    steps = [cost.begin_s(each.length - each.num_cached) + cost.alone_s(each.length, each.num_cached) for each in times]
    outside = [each.seconds - step_s for each, step_s in zip(times, steps, strict=True)]
    columns = np.array([[1.0, each.length] for each in times])
    fixed_s, token_s = non_negative_least_squares(columns, np.maximum(np.array(outside), 0.0))
    return float(fixed_s), float(token_s)


@contextmanager
def serving(arguments: Sequence[str]) -> Iterator[str]:
    """The address of a server with these arguments, once it is ready."""
    command = [sys.executable, "-m", "chairlift", "serve", "--host", "127.0.0.1", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url, line = "", ""
            for line in process.stderr:
                url = line.rpartition(" on ")[2].strip() if " on http" in line and not url else url
                if "ready in" in line:
                    break
            else:
                raise ChairliftError(f"the server did not start: {line.strip()}")
            threading.Thread(target=process.stderr.read, daemon=True).start()  # so that it never waits for a reader
            yield url
        finally:
            process.terminate()


def _card(url: str) -> dict[str, object]:
    connection = _connection(url)
    try:
        connection.request("GET", "/v1/models")
        response = connection.getresponse()
        cards = json.loads(response.read())
        if response.status != 200:
            raise ChairliftError(f"the server lists no model (status {response.status})")
        card: dict[str, object] = cards["data"][0]
        return card
    finally:
        connection.close()


def _first_token(url: str, model: str, length: int, turn: int) -> FirstToken:
    rng = random.Random(f"{length} {turn}")  # another turn, another prompt
    prompt = [rng.randrange(_MAX_TOKEN) for _ in range(length)]
    body = {"model": model, "prompt": prompt, "max_tokens": 2, "temperature": 0.0, "ignore_eos": True, "stream": True}
    body["stream_options"] = {"include_usage": True}
    data, connection = json.dumps(body), _connection(url)
    try:
        connection.connect()
        started = time.perf_counter()
        connection.request("POST", "/v1/completions", data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise ChairliftError(f"the server answered with status {response.status}: {response.read(200)!r}")
        while not response.readline().startswith(b"data:"):
            if response.isclosed():
                raise ChairliftError("the server ended an answer before its first token")
        seconds = time.perf_counter() - started
        return FirstToken(length, _num_cached(response.read()), seconds)
    finally:
        connection.close()


def _num_cached(answer: bytes) -> int:
    """From the usage that ends an answer; 0 without one."""
    usage = [line for line in answer.splitlines() if b'"cached_tokens"' in line]
    if not usage:
        return 0
    details = json.loads(usage[-1].removeprefix(b"data:"))["usage"]["prompt_tokens_details"]
    return int(details["cached_tokens"])


def _connection(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_S)
