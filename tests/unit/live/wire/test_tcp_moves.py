"""Requests that leave a node with their keys and values: over TCP and CURVE, and what happens where that fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from chairlift.core.params import SamplingParams
from chairlift.live.moving.ticket import Ticket
from chairlift.live.wire import messages
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.curve import Curve
from fakes.heard import Heard, joined
from fakes.ledger_process import Restarted, pieces_of
from fakes.patience import until
from fakes.raw_sockets import free_address
from fakes.resumed import LONG, check

KEY = "11" * 32
CURVE = Curve(KEY)
PARAMS = [SamplingParams(max_tokens=2 * LONG, seed=i, ignore_eos=True) for i in range(4)]
PROMPT = [5] * 500


class Drained:
    """Two nodes, of which the first is drained under requests."""

    def __init__(self, client: EngineClient, engines: list[Restarted], pieces: Path) -> None:
        self.client, self.engines, self.pieces = client, engines, pieces
        self.num_moved = 0  # with a ticket

    async def drain(self) -> None:
        self.client.on_moved = self._count
        heard = [Heard(self.client, [i, *PROMPT], params) for i, params in enumerate(PARAMS)]
        await until(lambda: all(each.outputs for each in heard))
        assert self.client.replicas.drain(0, is_on=True)
        await until(lambda: {each.generation.replica for each in heard if each.generation._open} <= {1})
        for i, each in enumerate(heard):
            await check(each, [i, *PROMPT], PARAMS[i])
        assert [engine.num_deaths for engine in self.engines] == [0, 0]

    def _count(self, why: str, with_kv: bool) -> None:
        assert why == "drain"
        self.num_moved += with_kv


@asynccontextmanager
async def two_nodes(folder: Path, *pieces: str) -> AsyncIterator[Drained]:
    """`pieces`: where the first sends keys and values from, and where others are told so."""
    async with AsyncExitStack() as stack:
        public, engines = [free_address(), free_address()], []
        for i, address in enumerate(public):
            more = pieces if i == 0 else ()
            engine = Restarted(f"ipc://{folder}/engine-{i}", address, KEY, *more)
            engines.append(await stack.enter_async_context(engine))
        client = await stack.enter_async_context(joined([], "one", is_cluster=True))
        for number, address in enumerate(public):
            client.replicas.add(address, CURVE, lambda: None, number)
        await until(lambda: all(map(client.replicas.is_linked, range(2))))
        yield Drained(client, engines, pieces_of(folder / "engine-0"))


async def test_a_drain_takes_keys_and_values_along(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as nodes:
        await nodes.drain()
        assert nodes.num_moved > 0
        await until(lambda: not list(nodes.pieces.iterdir()))  # all were fetched


@pytest.mark.sampled(1)
@pytest.mark.parametrize("num_bytes", [0, 300, 2000])
async def test_a_connection_that_is_cut_on_the_way_costs_no_token(tmp_path: Path, num_bytes: int) -> None:
    """At once, while keys are proved, or in the middle of a piece."""
    inner = free_address()
    async with _cutting(inner, num_bytes) as outer, two_nodes(tmp_path, inner, outer) as nodes:
        await nodes.drain()
        assert nodes.num_moved > 0
        assert list(nodes.pieces.iterdir())


@asynccontextmanager
async def _cutting(inner: str, num_bytes: int) -> AsyncIterator[str]:
    """An address that forwards so many bytes of each answer and closes."""
    host, port = inner.removeprefix("tcp://").split(":")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: float) -> None:
        while left > 0 and (data := await reader.read(100)):
            writer.write(data)
            left -= len(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        up = asyncio.ensure_future(forward(reader, back, float("inf")))
        await forward(there, writer, num_bytes)
        up.cancel()
        back.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_forged_tickets_are_computed(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as nodes:
        forger: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        forger.setsockopt(zmq.LINGER, 0)
        CURVE.connect(forger, nodes.client.replicas._places[1].link.address)
        forger.send(msgspec.msgpack.encode(messages.Hello()))
        forged = [
            Ticket("0" * 32, "", 1, b"", 1, 1, "tcp://127.0.0.1:1"),
            Ticket("../engine-0", "", -5, b"", -1, -1, "no address"),
            Ticket("", "", 1 << 40, b"", 1 << 60, 0),
        ]
        params = SamplingParams(max_tokens=3, seed=1, ignore_eos=True)
        for key, ticket in enumerate(forged):
            submit = messages.Submit(key, [1, 2], params, 3, outputs={0: [4]}, ticket=ticket)
            forger.send(msgspec.msgpack.encode(submit))
        ended = set[int]()
        while len(ended) < len(forged):
            await until(lambda: forger.poll(0))
            message = msgspec.msgpack.decode(forger.recv(), type=messages.FromEngine)
            if isinstance(message, messages.Step):
                ended |= {output.key for output in message.outputs if output.finish == "length"}
        assert nodes.engines[1].num_deaths == 0
        forger.close()
