"""Several replicas, killed and drained under streams: with `--exact` every answer is the undisturbed one."""

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S, wait_until
from fakes.processes import children
from fakes.served import Served, serve

pytestmark = pytest.mark.slow

TEXT = "the lift goes up the hill "
LONG: dict[str, Any] = {"max_tokens": 300, "ignore_eos": True, "stream": True}
SCHEMA = {
    "type": "object",
    "properties": {"note": {"type": "string", "minLength": 150, "maxLength": 200}},
    "required": ["note"],
}
ASKED: list[dict[str, Any]] = [
    LONG | {"prompt": TEXT, "temperature": 0.0},
    LONG | {"prompt": TEXT * 9, "temperature": 0.9, "seed": 3},
    LONG | {"prompt": TEXT, "n": 2, "seed": 4, "logprobs": 2},
    LONG | {"prompt": TEXT * 30, "seed": 5, "frequency_penalty": 0.5},
    {"prompt": TEXT, "seed": 6, "max_tokens": 400, "stream": True, "guided_json": SCHEMA},
    {"prompt": TEXT, "use_beam_search": True, "best_of": 2, "max_tokens": 20},
]


@pytest.fixture(scope="module")
def replicas(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("server") / "log"
    options = ("--exact", "--kv-memory", "64MiB", "--replicas", 3, "--frontends", 2, "--router", "least-loaded")
    with serve(log, "--model", tiny_model, *options, "--admin-port", 0) as served:
        yield served


def engines(served: Served) -> dict[int, int]:
    """Process ids by replica."""
    return {int(name[-1]): pid for pid, name in children(served.process.pid, "cl-engine-").items()}


def admin(served: Served) -> str:
    found = re.search(r"admin routes on (\S+)", served.output)
    assert found is not None
    return found[1]


def states(served: Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{admin(served)}/admin/replicas", timeout=HANG_S).json()
    return found


def answer(url: str, body: dict[str, Any], has_begun: threading.Event) -> dict[int, Any]:
    """The text and the log-probabilities of each sample, every chunk with its token."""
    samples: dict[int, Any] = {}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=HANG_S) as response:
        for line in response.iter_lines():
            has_begun.set()
            assert "error" not in line, line
            if line.startswith(("data: {", "{")):
                for choice in json.loads(line.removeprefix("data: "))["choices"]:
                    samples.setdefault(choice["index"], []).append((choice["text"], choice["logprobs"]))
    assert response.status_code == 200
    return samples


def ask_all(served: Served, disturb: Callable[[], None] = lambda: None) -> list[dict[int, Any]]:
    begun = [threading.Event() for _ in ASKED]
    with ThreadPoolExecutor(len(ASKED)) as threads:
        answers = [threads.submit(answer, served.url, *each) for each in zip(ASKED, begun, strict=True)]
        for event in begun[:5]:
            event.wait(HANG_S)
        disturb()
        return [each.result() for each in answers]


def moved(served: Served, **labels: str) -> float:
    """Requests that went on elsewhere: all, or those of a reason or a kind."""
    text = httpx.get(f"{served.url}/metrics", timeout=HANG_S).text
    lines = [line for line in text.splitlines() if line.startswith("chairlift_requests_moved_total{")]
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return sum(float(line.split()[-1]) for line in lines if all(label in line for label in wanted))


def test_kills_and_drains_of_replicas_change_no_answer(replicas: Served) -> None:
    undisturbed = ask_all(replicas)

    def kill() -> None:
        busiest = max(states(replicas), key=lambda each: each["running"])["replica"]
        os.kill(engines(replicas)[busiest], signal.SIGKILL)

    assert ask_all(replicas, kill) == undisturbed
    wait_until(lambda: len(re.findall(r"the engine \d is ready again", replicas.output)) == 1)
    after_kill = moved(replicas)
    assert after_kill > 0

    def drain() -> None:
        busiest = max(states(replicas), key=lambda each: each["running"])["replica"]
        found = httpx.post(f"{admin(replicas)}/admin/replicas/{busiest}/drain", timeout=HANG_S)
        assert found.json() == {"replica": busiest, "is_draining": True}
        wait_until(
            lambda: states(replicas)[busiest]["state"] == "draining" and not states(replicas)[busiest]["running"]
        )

    assert ask_all(replicas, drain) == undisturbed
    wait_until(lambda: moved(replicas, why="drain") > 0)
    (drained,) = [each["replica"] for each in states(replicas) if each["state"] == "draining"]
    httpx.post(f"{admin(replicas)}/admin/replicas/{drained}/resume", timeout=HANG_S)
    wait_until(lambda: all(each["state"] == "ready" for each in states(replicas)))
    assert "Traceback" not in replicas.output


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["shared", "tcp"])
def test_prompts_and_answers_in_other_replicas_give_the_same_answers(
    tiny_model: Path, tmp_path: Path, replicas: Served, way: str
) -> None:
    undisturbed = ask_all(replicas)
    options = ("--exact", "--kv-memory", "64MiB", "--replicas", 3, "--roles", "prefill:1,decode:2", "--move-kv", way)
    with serve(tmp_path / "log", "--model", tiny_model, *options, "--admin-port", 0) as served:
        assert ask_all(served) == undisturbed
        wait_until(lambda: moved(served, why="role", kv="moved") >= 4)  # one has two samples, one is a search
        assert "Traceback" not in served.output


def test_metrics_and_the_page_show_each_replica(replicas: Served) -> None:
    text = httpx.get(f"{replicas.url}/metrics", timeout=HANG_S).text
    assert {f'replica="{i}",state="running"' in text for i in range(3)} == {True}
    with httpx.stream("GET", f"{replicas.url}/live", timeout=HANG_S) as response:
        lines = response.iter_lines()
        assert any(line == "event: replicas" for line in lines)
        loads = json.loads(next(lines).removeprefix("data: "))
    assert [each["replica"] for each in loads] == [0, 1, 2]


@pytest.mark.nightly
def test_a_queue_is_shared_with_a_replica_that_comes_back_and_no_answer_changes(
    tiny_model: Path, tmp_path: Path
) -> None:
    asked = [LONG | {"prompt": f"{i} {TEXT * 9}", "seed": i, "max_tokens": 60} for i in range(24)]
    options = ("--exact", "--kv-memory", "64MiB", "--replicas", 2, "--frontends", 2)
    few = ("--max-running", 1, "--max-step-tokens", 16)
    with serve(tmp_path / "log", "--model", tiny_model, *options, *few, "--admin-port", 0) as served:
        undisturbed = [answer(served.url, body, threading.Event()) for body in asked]
        url = f"{admin(served)}/admin/replicas/1"
        httpx.post(f"{url}/drain", timeout=HANG_S)
        wait_until(lambda: states(served)[1]["state"] == "draining")
        begun = threading.Event()
        with ThreadPoolExecutor(len(asked)) as threads:
            answers = [threads.submit(answer, served.url, body, begun) for body in asked]
            wait_until(lambda: states(served)[0]["waiting"] > 15)
            httpx.post(f"{url}/resume", timeout=HANG_S)
            wait_until(lambda: moved(served, why="rebalance") > 3)
            assert [each.result() for each in answers] == undisturbed
