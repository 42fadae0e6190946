"""A server with nodes on loopback: killed, drained and refused; with `--exact` every answer is the undisturbed one."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from chairlift.config.cluster_key import make_key
from fakes.cluster import Node, ended, start_node
from fakes.patience import HANG_S, wait_until
from fakes.processes import children
from fakes.scrapes import Scrape
from fakes.served import Served, chairlift, serve

pytestmark = pytest.mark.slow

BY_REPLICA = "chairlift_replica_"

ASKED: list[dict[str, Any]] = [
    {"prompt": "the lift " * (1 + 9 * i), "max_tokens": 300, "ignore_eos": True, "seed": i, "logprobs": 1,
     "temperature": 0.8 * (i % 2), "n": 1 + (i == 2)}
    for i in range(5)
]  # fmt: skip
LONG = [{**body, "max_tokens": 2000, "n": 1} for body in ASKED]  # open for so long that a drain finds some


class Cluster:
    def __init__(self, served: Served, nodes: list[Node], join: str, folder: Path, model: Path) -> None:
        self.served, self.nodes, self.join = served, nodes, join
        self.key = folder / "key"
        self._folder, self._model, self._num_started = folder, model, 0

    def start(self, *options: object, model: Path | None = None) -> Node:
        self._num_started += 1
        arguments = ("--model", model or self._model, "--kv-memory", "64MiB", "--exact", *options)
        node = start_node(self._folder / f"node-{self._num_started}", self.join, self.key, *arguments)
        self.nodes.append(node)
        return node

    def states(self) -> list[dict[str, Any]]:
        found = re.search(r"admin routes on (\S+)", self.served.output)
        assert found is not None
        loads: list[dict[str, Any]] = httpx.get(f"{found[1]}/admin/replicas", timeout=HANG_S).json()
        return loads

    def scrape(self) -> Scrape:
        return Scrape(httpx.get(f"{self.served.url}/metrics", timeout=HANG_S).text)

    def num_ready(self) -> int:
        return sum(each["state"] == "ready" for each in self.states())

    def num_busy(self) -> int:
        return sum(each["running"] > 0 for each in self.states())

    def ask(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        answer = httpx.post(f"{self.served.url}/v1/completions", json=body, timeout=HANG_S)
        assert answer.status_code == 200, answer.text
        choices: list[dict[str, Any]] = answer.json()["choices"]
        return choices


@pytest.fixture(scope="module")
def cluster(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    make_key(folder / "key")
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        join = f"127.0.0.1:{trial.getsockname()[1]}"
    nodes: list[Node] = []
    with ended(nodes):
        options = ("--cluster", join, "--cluster-key", folder / "key", "--exact", "--router", "round-robin")
        arguments = ("--model", tiny_model, "--kv-memory", "64MiB", *options, "--admin-port", 0)
        with serve(folder / "log", *arguments) as served:
            found = Cluster(served, nodes, join, folder, tiny_model)
            for node in (found.start("--address", "127.0.0.2"), found.start("--address", "127.0.0.3")):
                node.wait_joined()
            wait_until(lambda: found.num_ready() == 3, lambda: served.output)
            yield found


def test_the_kill_of_a_node_changes_no_answer(cluster: Cluster) -> None:
    with ThreadPoolExecutor(len(ASKED)) as threads:
        undisturbed = list(threads.map(cluster.ask, ASKED))
        answers = [threads.submit(cluster.ask, body) for body in ASKED]
        wait_until(lambda: cluster.num_busy() >= 2)
        cluster.nodes[0].kill()
        assert [each.result() for each in answers] == undisturbed


@pytest.mark.nightly
def test_the_death_of_the_list_and_a_drain_change_none_either(cluster: Cluster) -> None:
    if cluster.nodes[0].process.poll() is None:  # without the test above
        cluster.nodes[0].kill()
    with ThreadPoolExecutor(len(ASKED)) as threads:
        undisturbed = list(threads.map(cluster.ask, ASKED))

        # A list that dies is started again; no stream notices, and members that come later are found.
        (members,) = children(cluster.served.process.pid, "member")
        answers = [threads.submit(cluster.ask, body) for body in ASKED]
        wait_until(lambda: cluster.num_busy() >= 2)
        os.kill(members, signal.SIGKILL)
        assert [each.result() for each in answers] == undisturbed
        wait_until(lambda: "the members list is ready again" in cluster.served.output, lambda: cluster.served.output)
        late = cluster.start()
        late.wait_joined()
        wait_until(lambda: cluster.num_ready() == 3, lambda: cluster.served.output)

        undisturbed = list(threads.map(cluster.ask, LONG))
        answers = [threads.submit(cluster.ask, body) for body in LONG]
        wait_until(lambda: cluster.num_busy() == 3)
        cluster.nodes[1].process.send_signal(signal.SIGTERM)
        assert [each.result() for each in answers] == undisturbed
        assert cluster.nodes[1].process.wait(HANG_S) == 0
        assert cluster.nodes[1].output.splitlines()[-1].startswith("chairlift: stopped after ")
        wait_until(lambda: "has left" in cluster.served.output)
    wait_until(lambda: cluster.scrape().value("chairlift_members") == 1)
    wait_until(lambda: cluster.scrape().value("chairlift_kv_fetches_total", outcome="whole") >= 1)  # nodes tell late
    scrape, numbers = cluster.scrape(), [str(each["replica"]) for each in cluster.states() if each["state"] == "ready"]
    assert {dict(labels)["replica"] for name, labels in scrape.samples if name.startswith(BY_REPLICA)} == {*numbers}
    assert scrape.value("chairlift_drains_total") == 1
    assert scrape.value("chairlift_requests_moved_total", why="drain", kv="moved") >= 1
    assert scrape.value("chairlift_kv_fetches_total", outcome="whole") >= 1
    assert scrape.value("chairlift_kv_fetches_total", outcome="failed") == 0
    assert scrape.value("chairlift_replica_requests_moved_total") >= 1
    own, others = (scrape.value("chairlift_replica_generated_tokens_total", replica=each) for each in numbers)
    assert own > 0
    assert others > 0
    assert scrape.value("chairlift_generated_tokens_total") > own + others  # those that are gone have made some
    assert scrape.value("chairlift_inter_token_seconds_count") > own + others  # and their histograms are added
    wait_until(lambda: cluster.scrape().value("chairlift_requests_running") == 0)


@pytest.mark.nightly
def test_a_node_that_does_not_fit_is_refused_in_one_line_on_both_sides(cluster: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    make_key(wrong)
    small = cluster.start("--max-model-len", 64)
    node = ("node", "--join", cluster.join, "--exact")
    assert small.process.wait(HANG_S) == 2
    assert "--kv-memory" in small.output.splitlines()[-1]
    assert "may not join: it has memory for requests of 64 tokens" in cluster.served.output
    other = chairlift(*node, "--cluster-key", cluster.key, "--kv-memory", "64MiB")  # the embedded model
    assert other.returncode == 2
    assert "start both with the same --model" in other.stderr.splitlines()[-1]
    locked_out = chairlift(*node, "--cluster-key", wrong, "--kv-memory", "64MiB")
    assert locked_out.returncode == 2
    assert "another cluster key" in locked_out.stderr.splitlines()[-1]
    wait_until(lambda: "was turned away" in cluster.served.output)
    wait_until(lambda: cluster.scrape().value("chairlift_connections_turned_away_total") >= 1)
    assert cluster.scrape().value("chairlift_joins_refused_total", reason="memory") == 1
    assert cluster.scrape().value("chairlift_joins_refused_total", reason="model") == 1
    keyless = chairlift(*node)
    assert "chairlift cluster-key FILE" in keyless.stderr
    taken = chairlift(*node, "--cluster-key", cluster.key, "--address", cluster.join)
    assert taken.returncode == 2
    assert "--address" in taken.stderr
