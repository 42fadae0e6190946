"""A members' list and the agents of two nodes, in processes of their own; engines on the ledger runner."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from chairlift.build import ResolvedModel, find_model
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.params import SamplingParams
from chairlift.live.nodes.feed import MembersFeed
from chairlift.live.processes.child import STOP, Child
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.curve import Curve
from chairlift.serving.agent import agent_main
from chairlift.serving.members import members_main
from chairlift.serving.process_setup import RunFolder
from fakes.heard import Heard, joined
from fakes.ledger_process import POISON, Restarted, note_at
from fakes.patience import until
from fakes.resumed import LONG, check

pytestmark = pytest.mark.slow

KEY = "11" * 32


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def folder_at(path: Path) -> RunFolder:
    path.mkdir()
    (path / "metrics").mkdir()
    return RunFolder(path)


@contextlib.contextmanager
def running(child: Child) -> Iterator[Child]:
    try:
        yield child
    finally:
        child.kill()
        child.close()


class Cluster:
    def __init__(self, path: Path) -> None:
        self.folder = folder_at(path / "server")
        self.join = f"127.0.0.1:{free_port()}"
        self.engines: list[Restarted] = []
        self.agents: list[Child] = []
        self._path = path

    def start_list(self) -> Child:
        model = find_model(Settings(replicas=0, cluster=self.join, cluster_key=KEY))
        child = Child("members list", members_main, model, self.folder, f"tcp://{self.join}")
        child.wait_ready()
        return child

    async def add_node(self, stack: AsyncExitStack) -> Callable[[], Child]:
        """What starts its agent, again after the first."""
        folder = folder_at(self._path / f"node-{len(self.engines)}")
        public = f"tcp://127.0.0.1:{free_port()}"
        folder.steps(0).symlink_to(note_at(folder.address(0)).path)
        self.engines.append(await stack.enter_async_context(Restarted(folder.address(0), public, KEY)))

        def start_agent() -> Child:
            agent = Child("agent", agent_main, self.node_model(), folder, [public])
            return stack.enter_context(running(agent))

        self.agents.append(start_agent())
        return start_agent

    def node_model(self, key: str = KEY) -> ResolvedModel:
        return find_model(Settings(join=self.join, cluster_key=key))


@asynccontextmanager
async def front_end(cluster: Cluster) -> AsyncIterator[EngineClient]:
    async with joined([], "one", is_cluster=True) as client:
        feed = asyncio.ensure_future(MembersFeed(client.replicas, Curve(KEY)).run(cluster.folder.members))
        yield client
        feed.cancel()
        await asyncio.wait([feed])


def num_ready(client: EngineClient) -> int:
    return sum(each["state"] == "ready" for each in client.replicas.loads())


@pytest.mark.nightly
async def test_a_list_that_dies_costs_no_stream_and_the_next_finds_all(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    async with AsyncExitStack() as stack:
        with running(cluster.start_list()):
            await cluster.add_node(stack)
            client = await stack.enter_async_context(front_end(cluster))
            await until(lambda: num_ready(client) == 1)
            params = SamplingParams(max_tokens=4 * LONG, seed=1)
            heard = [Heard(client, [i], params) for i in range(4)]
            await until(lambda: all(each.outputs for each in heard))
        for i, each in enumerate(heard):
            await check(each, [i], params)
        await cluster.add_node(stack)  # while there is no list
        with running(cluster.start_list()):
            await until(lambda: num_ready(client) == 2)
        assert [engine.num_deaths for engine in cluster.engines] == [0, 0]


async def test_a_request_that_crashes_a_node_meets_no_other_as_its_agent_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chairlift.live.wire.replica_links._REMOTE_LOOKS", 10_000)  # however busy the machine
    cluster = Cluster(tmp_path)
    async with AsyncExitStack() as stack:
        stack.enter_context(running(cluster.start_list()))
        for _ in range(2):
            await cluster.add_node(stack)
        client = await stack.enter_async_context(front_end(cluster))
        await until(lambda: num_ready(client) == 2)
        (output,) = await Heard(client, [1, POISON, 2], SamplingParams(max_tokens=5)).all()
        assert "ended the engine" in (output.error or "")
        assert sorted(engine.num_deaths > 0 for engine in cluster.engines) == [False, True]


async def test_a_node_that_has_left_and_comes_back_takes_requests(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    async with AsyncExitStack() as stack:
        stack.enter_context(running(cluster.start_list()))
        start_agent = await cluster.add_node(stack)
        client = await stack.enter_async_context(front_end(cluster))
        await until(lambda: num_ready(client) == 1)
        cluster.agents[0].tell(STOP)  # it drains the engine
        await until(lambda: not client.replicas.loads() and not cluster.agents[0].process.is_alive())
        cluster.engines[0].kill()  # the next is not drained
        start_agent()
        await until(lambda: num_ready(client) == 1)


def test_an_agent_with_another_key_ends_with_a_line(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with running(cluster.start_list()):
        agent = Child(
            "agent", agent_main, cluster.node_model("22" * 32), folder_at(tmp_path / "node"), ["tcp://127.0.0.1:1"]
        )
        with running(agent), pytest.raises(InvalidConfig, match="another cluster key"):
            agent.wait_ready()
