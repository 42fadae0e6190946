"""`--exact` over HTTP: an answer does not depend on other requests, nor on the front end."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S
from fakes.served import Served, serve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[1, 2], ids=lambda count: f"{count} front ends")
def exact(
    request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("server") / "log"
    options = ("--exact", "--dtype", "bfloat16", "--kv-memory", "64MiB", "--frontends", str(request.param))
    with serve(log, "--model", tiny_model, *options) as served:
        yield served


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
