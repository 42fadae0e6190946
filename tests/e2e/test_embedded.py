"""The embedded default as a newcomer meets it: how soon it answers, that it answers well, and what it holds."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from fakes.patience import HANG_S
from fakes.served import Served, serve

# Of processor time, in that of importing torch: about 2 with native kernels, and more where weights are unpacked first.
MAX_READY = 8
MAX_RESIDENT = 1.2e9


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("server") / "log") as served:
        yield served


def ask(served: Served, question: str, max_tokens: int = 16) -> str:
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": max_tokens, "temperature": 0}
    response = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=HANG_S)
    assert response.status_code == 200
    answer: str = response.json()["choices"][0]["message"]["content"]
    return answer


def resident_bytes(served: Served) -> int:
    """What the server's processes hold, shared pages counted once."""
    parent = psutil.Process(served.process.pid)
    return sum(process.memory_full_info().pss for process in (parent, *parent.children(recursive=True)))


@pytest.mark.nightly
def test_it_is_ready_soon(embedded: Served) -> None:
    parent = psutil.Process(embedded.process.pid)
    took_s = sum(sum(process.cpu_times()[:2]) for process in (parent, *parent.children(recursive=True)))
    before = sum(os.times()[2:4])
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    base_s = sum(os.times()[2:4]) - before
    print(f"ready after {took_s:.1f} s of processor time; importing torch takes {base_s:.1f} s")
    assert took_s < MAX_READY * base_s


@pytest.mark.slow
def test_it_knows_what_hot_is_not(embedded: Served) -> None:
    assert "cold" in ask(embedded, "What is the opposite of hot?")


@pytest.mark.slow
def test_it_stays_small_after_thirty_two_requests(embedded: Served, record_property) -> None:
    with ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(lambda i: ask(embedded, f"Tell me about the number {i}.", 8), range(32)))
    assert all(answers)
    resident = resident_bytes(embedded)
    record_property("resident_bytes", resident)
    print(f"{resident / 1e6:.0f} MB resident after 32 requests")
    assert resident < MAX_RESIDENT
