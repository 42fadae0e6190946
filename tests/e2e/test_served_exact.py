"""`--exact` over HTTP: an answer does not depend on other requests, nor on the front end."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S
from fakes.served import Served

pytestmark = pytest.mark.slow


def ask(served: Served, index: int) -> Any:
    body = {
        "prompt": "the lift goes up the hill " * (1 + index % 7), "max_tokens": 16, "logprobs": 3, "seed": index,
        "temperature": 0.0 if index % 2 else 0.9, "n": 1 + index % 3, "ignore_eos": True,
    }  # fmt: skip
    response = httpx.post(f"{served.url}/v1/completions", json=body, timeout=HANG_S)
    assert response.status_code == 200
    return [(choice["text"], choice["logprobs"]) for choice in response.json()["choices"]]


def test_many_at_once_are_answered_as_one_by_one(exact: Served) -> None:
    alone = [ask(exact, index) for index in range(14)]
    with ThreadPoolExecutor(14) as threads:
        together = list(threads.map(lambda index: ask(exact, index), range(14)))
    assert together == alone
    (told,) = httpx.get(f"{exact.url}/v1/models", timeout=HANG_S).json()["data"]
    assert told["exact"] is True
