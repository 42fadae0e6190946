"""`--tensor-parallel 2` over HTTP: a rank, the engine or the parent is killed under streams."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from fakes.patience import HANG_S, wait_until
from fakes.processes import children, is_alive
from fakes.served import Served, chairlift, serve

pytestmark = pytest.mark.nightly

OPTIONS = ("--tensor-parallel", 2, "--exact", "--dtype", "float32", "--kv-memory", "16MiB", "--max-running", 8)


@pytest.fixture
def served(tiny_model: Path, tmp_path: Path) -> Iterator[Served]:
    with serve(tmp_path / "log", "--model", tiny_model, *OPTIONS) as found:
        yield found


def processes(served: Served, name: str) -> list[int]:
    return [*children(served.process.pid, name, is_deep=True)]


def ask(served: Served, index: int, begun: threading.Event | None = None) -> str:
    """The text of a stream; `begun` is set when its first piece has come."""
    body = {"prompt": "the lift " * (1 + index), "max_tokens": 300, "seed": index, "ignore_eos": True, "stream": True}
    text = ""
    with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=HANG_S) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line and line != "data: [DONE]":
                text += json.loads(line.removeprefix("data: "))["choices"][0]["text"]
                if begun is not None:
                    begun.set()
    return text


def test_answers_go_on_when_a_rank_or_the_engine_is_killed_and_no_rank_outlives_the_parent(served: Served) -> None:
    assert ": cpu in 2 ranks, " in served.output
    undisturbed = [ask(served, index) for index in range(4)]
    for name in ("cl-rank-1", "cl-engine"):
        before = processes(served, "cl-engine")[0], processes(served, "cl-rank-1")[0]
        begun = threading.Event()
        with ThreadPoolExecutor(4) as threads:
            answers = [threads.submit(ask, served, index, begun) for index in range(4)]
            assert begun.wait(HANG_S)
            os.kill(processes(served, name)[0], signal.SIGKILL)
            assert [answer.result(HANG_S) for answer in answers] == undisturbed
        wait_until(lambda gone=before: not any(map(psutil.pid_exists, gone)))
        assert len(processes(served, "cl-rank-1")) == len(processes(served, "cl-engine")) == 1
    assert "because its rank 1 died (killed by SIGKILL)" in served.output
    assert "Traceback" not in served.output
    assert served.output.count("the engine died (killed by SIGKILL)") == 2
    (rank,) = processes(served, "cl-rank-1")
    served.process.kill()
    wait_until(lambda: not is_alive(rank))


def test_commands_compute_with_ranks(tiny_model: Path) -> None:
    asked = ("--model", tiny_model, "--max-tokens", 8, "--temperature", 0, "the lift", "--dtype", "float32")
    alone, ranks = chairlift("generate", *asked), chairlift("generate", *asked, "--tensor-parallel", 2)
    assert ranks.returncode == 0, ranks.stderr
    assert ranks.stdout == alone.stdout != ""
    refused = chairlift("generate", *asked, "--tensor-parallel", 3)
    assert refused.returncode == 2
    assert refused.stderr.strip().splitlines()[-1].endswith("use --tensor-parallel 2")
