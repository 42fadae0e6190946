"""A server whose replicas Ray places, on a Ray cluster of several nodes on this machine."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from fakes.patience import HANG_S, wait_until
from fakes.processes import children
from fakes.served import Served, chairlift, serve

pytest.importorskip("ray", reason="needs Ray (pip install 'chairlift[ray]')")
pytestmark = pytest.mark.slow

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # else Ray takes the machine's own address
ASKED: list[dict[str, Any]] = [
    {"prompt": "the lift " * (1 + 9 * i), "max_tokens": 300, "ignore_eos": True, "seed": i, "temperature": 0.4 * i}
    for i in range(4)
]


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without room and two nodes with room for a replica each."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LOOPBACK.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
        found = _start_head() or _start_head()
        assert found is not None, "Ray's head did not start"
        try:
            found.nodes = [found.add_node(num_cpus=1) for _ in range(2)]
            yield found
        finally:
            found.shutdown()


def _start_head() -> Any:
    """None: it took longer than Ray waits, which on a busy machine it may."""
    from ray.cluster_utils import Cluster

    try:
        return Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    except Exception as error:
        if "timed out during startup" not in str(error):
            raise
        return None


def options(cluster: Any, model: Path, *more: object) -> tuple[object, ...]:
    engine = ("--model", model, "--kv-memory", "64MiB", "--threads", 1, "--exact", "--router", "round-robin")
    return ("--cluster", f"ray://{cluster.address}", *engine, "--admin-port", 0, *more)


def states(served: Served) -> list[dict[str, Any]]:
    found = re.search(r"admin routes on (\S+)", served.output)
    assert found is not None
    loads: list[dict[str, Any]] = httpx.get(f"{found[1]}/admin/replicas", timeout=HANG_S).json()
    return loads


def num_ready(served: Served) -> int:
    return sum(each["state"] == "ready" for each in states(served))


def num_busy(served: Served) -> int:
    return sum(each["running"] > 0 for each in states(served))


def ask(served: Served, body: dict[str, Any]) -> str:
    answer = httpx.post(f"{served.url}/v1/completions", json=body, timeout=HANG_S)
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["text"]
    return text


def nodes_of(served: Served) -> list[psutil.Process]:
    join = re.search(r"nodes join at (\S+)", served.output)
    assert join is not None
    found = []
    for each in psutil.process_iter():
        try:
            if "node" in (line := each.cmdline()) and join[1] in line:
                found.append(each)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            pass
    return found


@pytest.mark.nightly
def test_streams_outlive_ray_nodes_and_the_process_that_places(cluster: Any, tiny_model: Path, tmp_path: Path) -> None:
    arguments = options(cluster, tiny_model, "--replicas", 3)
    with serve(tmp_path / "log", *arguments, environment=LOOPBACK) as served, ThreadPoolExecutor(len(ASKED)) as threads:
        wait_until(lambda: num_ready(served) == 2, lambda: served.output)
        assert len(re.findall(r"replica \d waits: Ray has no machine with 1 CPU free", served.output)) == 1
        undisturbed = [ask(served, body) for body in ASKED]

        answers = [threads.submit(ask, served, body) for body in ASKED]
        (placing,) = children(served.process.pid, "placement")
        before = {each.pid for each in nodes_of(served)}
        wait_until(lambda: num_busy(served) == 2)
        os.kill(placing, signal.SIGKILL)
        assert [each.result() for each in answers] == undisturbed
        wait_until(lambda: "the placement is ready again" in served.output, lambda: served.output)
        wait_until(lambda: served.output.count(" starts on ") == 4, lambda: served.output)  # it has found both
        assert {each.pid for each in nodes_of(served)} == before

        answers = [threads.submit(ask, served, body) for body in ASKED]
        wait_until(lambda: num_busy(served) == 2)
        cluster.remove_node(cluster.nodes[0], allow_graceful=False)
        assert [each.result() for each in answers] == undisturbed
        wait_until(lambda: num_ready(served) == 1 and "is gone from" in served.output, lambda: served.output)

        cluster.add_node(num_cpus=2)
        wait_until(lambda: num_ready(served) == 3, lambda: served.output)
        assert [ask(served, body) for body in ASKED] == undisturbed
    assert nodes_of(served) == []


@pytest.mark.nightly
def test_replicas_come_and_go_with_the_load(cluster: Any, tiny_model: Path, tmp_path: Path) -> None:
    arguments = options(cluster, tiny_model, "--autoscale", "1-2:target=48,up=1,down=2")
    with serve(tmp_path / "log", *arguments, environment=LOOPBACK) as served, ThreadPoolExecutor(len(ASKED)) as threads:
        assert num_ready(served) == 1
        is_over = False

        def load() -> None:
            while not is_over:
                ask(served, ASKED[0])

        streams = [threads.submit(load) for _ in ASKED]
        wait_until(lambda: num_ready(served) == 2, lambda: served.output)
        is_over = True
        for each in streams:
            each.result()
        assert "2 replicas instead of 1" in served.output
        wait_until(lambda: " has left" in served.output, lambda: served.output)
        wait_until(lambda: num_ready(served) == 1 and len(nodes_of(served)) == 1, lambda: served.output)
        assert ask(served, ASKED[0])


@pytest.mark.nightly
def test_a_cluster_that_is_not_there_is_one_line() -> None:
    found = chairlift("serve", "--cluster", "ray://127.0.0.1:9")
    assert found.returncode == 2
    (line,) = found.stderr.splitlines()
    assert "--cluster ray://127.0.0.1:9: cannot reach the Ray cluster: nothing listens there; start Ray" in line
