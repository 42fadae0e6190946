"""Engines behind TCP and CURVE: only those with the key are heard, and requests move as on one machine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from chairlift.core.errors import EngineUnavailable
from chairlift.core.params import SamplingParams
from chairlift.live.wire import messages
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.curve import Curve
from fakes.heard import Heard, joined
from fakes.ledger_process import POISON, Restarted, note_at
from fakes.patience import until
from fakes.raw_sockets import free_address
from fakes.resumed import LONG, check

KEY, OTHER_KEY = "11" * 32, "22" * 32
CURVE = Curve(KEY)


@asynccontextmanager
async def nodes(folder: Path, count: int) -> AsyncIterator[tuple[list[Restarted], list[str], EngineClient]]:
    """Engines at TCP addresses, and a client that was told of them."""
    inside = [f"ipc://{folder}/engine-{i}" for i in range(count)]
    public = [free_address() for _ in inside]
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(Restarted(address, where, KEY))
            for address, where in zip(inside, public, strict=True)
        ]
        client = await stack.enter_async_context(joined([], "one", is_cluster=True))
        for number, (address, where) in enumerate(zip(inside, public, strict=True)):
            client.replicas.add(where, CURVE, note_at(address).look, number)
        await until(lambda: all(map(client.replicas.is_linked, range(count))))
        yield engines, public, client


def dealer(curve: Curve | None, address: str) -> zmq.Socket[bytes]:
    """A socket that says hello as a front end does."""
    found: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    found.setsockopt(zmq.LINGER, 0)
    if curve is None:
        found.connect(address)
    else:
        curve.connect(found, address)
    found.send(msgspec.msgpack.encode(messages.Hello()))
    return found


async def test_streams_of_killed_nodes_go_on_in_others(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as (engines, _, client):
        params = [SamplingParams(max_tokens=2 * LONG, seed=i, n=1 + i % 2) for i in range(8)]
        heard = [Heard(client, [i, 9], params[i]) for i in range(8)]
        await until(lambda: all(each.outputs for each in heard))
        for engine, replica in ((engines[0], 0), (engines[1], 1)):
            engine.kill()
            await until(lambda replica=replica: not client.replicas.is_linked(replica))
            await until(lambda: all(map(client.replicas.is_linked, range(2))))
        for i, each in enumerate(heard):
            await check(each, [i, 9], params[i])


async def test_a_request_that_crashes_a_node_meets_no_other(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as (engines, _, client):
        (output,) = await Heard(client, [1, POISON, 2], SamplingParams(max_tokens=5)).all()
        assert "ended the engine" in (output.error or "")
        assert sorted(engine.num_deaths > 0 for engine in engines) == [False, True]


async def test_requests_of_a_node_that_is_removed_go_on_elsewhere_and_its_place_is_taken(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as (_, public, client):
        params = SamplingParams(max_tokens=2 * LONG, seed=1, ignore_eos=True)
        heard = [Heard(client, [i], params) for i in range(4)]
        await until(lambda: all(each.outputs for each in heard))
        client.replicas.remove(0)
        assert {each.generation.replica for each in heard} == {1}
        assert [each["address"] for each in client.replicas.loads()] == [public[1]]
        assert client.replicas.add(public[0], CURVE, lambda: None, 4) == 0
        await until(lambda: client.replicas.is_linked(0))
        for i, each in enumerate(heard):
            await check(each, [i], params)


async def test_when_all_nodes_are_gone_new_requests_are_refused_and_open_ones_wait(tmp_path: Path) -> None:
    async with nodes(tmp_path, 1) as (_, public, client):
        params = SamplingParams(max_tokens=2 * LONG, seed=1, ignore_eos=True)
        heard = Heard(client, [5], params)
        await until(lambda: bool(heard.outputs))
        client.replicas.remove(0)
        with pytest.raises(EngineUnavailable):
            Heard(client, [6], params)
        client.replicas.add(public[0], CURVE, lambda: None, 4)
        await check(heard, [5], params)


@pytest.mark.parametrize("curve", [None, Curve(OTHER_KEY)])
async def test_without_the_key_nothing_is_answered(tmp_path: Path, curve: Curve | None) -> None:
    async with nodes(tmp_path, 1) as (engines, public, client):
        stranger = dealer(curve, public[0])
        member = dealer(CURVE, public[0])
        await until(lambda: member.poll(0))
        assert isinstance(msgspec.msgpack.decode(member.recv(), type=messages.FromEngine), messages.Ready)
        await check(Heard(client, [1], SamplingParams(max_tokens=9, seed=1)), [1], SamplingParams(max_tokens=9, seed=1))
        assert not stranger.poll(0)
        assert engines[0].num_deaths == 0
        stranger.close()
        member.close()


async def test_a_message_that_cannot_be_read_is_dropped(tmp_path: Path) -> None:
    async with nodes(tmp_path, 1) as (engines, public, client):
        forger = dealer(CURVE, public[0])
        forger.send(b"\x93\xa6Submit\x01")
        forger.send_multipart([b"two", b"parts"])
        forger.send(msgspec.msgpack.encode(messages.AskPrefixes()))
        params = SamplingParams(max_tokens=9, seed=1)
        for i in range(3):
            await check(Heard(client, [i], params), [i], params)
            await asyncio.sleep(0)
        assert engines[0].num_deaths == 0
        forger.close()


async def test_a_deadline_crosses_to_another_clock(tmp_path: Path) -> None:
    async with nodes(tmp_path, 1) as (_, _, client):
        # As if the engine's machine had been started a day before this one.
        link = client.replicas._places[0].link
        link._ahead_s = 86_400.0
        sent: list[messages.ToEngine] = []
        link._encoder = type("Kept", (), {"encode": lambda _, message: sent.append(message) or b"\xc0"})()  # type: ignore[assignment]
        heard = Heard(client, [1], SamplingParams(max_tokens=9))
        client.submit([1], SamplingParams(max_tokens=9), 9, heard, expires=1000.0)
        assert [each.expires for each in sent if isinstance(each, messages.Submit)] == [None, 87_400.0]
