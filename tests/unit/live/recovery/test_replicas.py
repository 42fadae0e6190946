"""Requests outlive their replica: killed, crashed by a poisoned request, or drained; real engine processes."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from chairlift.config.options.rules import make_router
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.live.recovery.step_note import InterruptedWork
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.messages import Drain, Draining, EngineInfo, Kept, Moved, Output, Ready, Recall, Step, Submit
from fakes.heard import Heard, joined
from fakes.ledger_process import BAD_AT_DOOR, POISON, Restarted, note_at
from fakes.patience import until
from fakes.resumed import KINDS, LONG, check

LIMITS = Limits(vocab_size=50, max_model_len=64, block_size=4, num_blocks=32, max_running=4, max_step_tokens=64)
ENDLESS = SamplingParams(max_tokens=50_000, ignore_eos=True)


class Fleet:
    """Some replicas on the ledger runner, and two front ends."""

    def __init__(self, engines: list[Restarted], clients: list[EngineClient]) -> None:
        self.engines = engines
        self.clients = clients

    @property
    def num_deaths(self) -> list[int]:
        return [engine.num_deaths for engine in self.engines]

    def is_ready(self, replica: int) -> bool:
        return all(client.replicas.is_linked(replica) for client in self.clients)


@asynccontextmanager
async def fleet(folder: Path, count: int, router: str = "round-robin") -> AsyncIterator[Fleet]:
    addresses = [f"ipc://{folder}/engine-{i}" for i in range(count)]
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(Restarted(address)) for address in addresses]
        notes = [note_at(address) for address in addresses]
        clients = [
            await stack.enter_async_context(
                joined(addresses, name, router=make_router(router), look=lambda replica: notes[replica].look())
            )
            for name in ("one", "two")
        ]
        yield Fleet(engines, clients)


def replicas_of(heard: list[Heard]) -> set[int | None]:
    return {each.generation.replica for each in heard}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("router", ["round-robin", "prefix"])
async def test_replicas_killed_at_random_moments_cost_no_token_and_repeat_none(tmp_path: Path, router: str) -> None:
    rng = random.Random(router)
    asked = []
    for i in range(28):
        prompt = [rng.randrange(POISON) for _ in range(rng.choice([1, 2, 20, 300]))]
        more = {"max_tokens": rng.randint(LONG // 2, LONG), "seed": i} | KINDS[i % len(KINDS)]
        asked.append((prompt, SamplingParams(**more)))
    async with fleet(tmp_path, 3, router) as world:
        heard = [Heard(world.clients[i % 2], *each) for i, each in enumerate(asked)]
        for kill in range(4):
            before = sum(len(each.outputs) for each in heard)
            await until(lambda before=before: sum(len(each.outputs) for each in heard) > before + 60)
            await asyncio.sleep(rng.random() * 0.05)
            world.engines[kill % 3].kill()
            await until(lambda kill=kill: not world.is_ready(kill % 3))
        for each, (prompt, params) in zip(heard, asked, strict=True):
            await check(each, prompt, params)
        assert sum(world.num_deaths) == 4


async def test_drains_under_kills_cost_no_token_and_move_keys_and_values(tmp_path: Path) -> None:
    rng = random.Random(1)
    kinds = [{"max_tokens": LONG, "seed": i} | KINDS[i % len(KINDS)] for i in range(20)]
    params = [SamplingParams(**kind) for kind in kinds]
    prompts = [[rng.randrange(POISON) for _ in range(rng.choice([1, 20, 300]))] for _ in params]
    moved: list[tuple[str, bool]] = []
    async with fleet(tmp_path, 3) as world:
        for client in world.clients:
            client.on_moved = lambda why, with_kv: moved.append((why, with_kv))
        heard = [Heard(world.clients[i % 2], *each) for i, each in enumerate(zip(prompts, params, strict=True))]
        for turn in range(4):
            before, replica = sum(len(each.outputs) for each in heard), turn % 3
            await until(lambda before=before: sum(len(each.outputs) for each in heard) > before + 60)
            world.clients[0].replicas.drain(replica, True)
            await asyncio.sleep(rng.random() * 0.02)
            if turn % 2:
                world.engines[replica].kill()
                await until(lambda replica=replica: not world.is_ready(replica))
            await until(lambda replica=replica: world.is_ready(replica))
            world.clients[0].replicas.drain(replica, False)
        for each, prompt, param in zip(heard, prompts, params, strict=True):
            await check(each, prompt, param)
    assert ("drain", True) in moved


async def test_streams_of_a_killed_replica_go_on_while_it_is_away(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2) as world:
        heard = [Heard(world.clients[0], [i, 1], ENDLESS) for i in range(6)]
        await until(lambda: all(len(each.outputs) > 3 for each in heard))
        assert replicas_of(heard) == {0, 1}
        world.engines[0]._watch.cancel()  # it is not started again
        note = note_at(world.engines[0]._address)
        world.engines[0].kill()
        note.tell_end(was_killed=True)
        await until(lambda: replicas_of(heard) == {1})
        counts = [len(each.outputs) for each in heard]
        await until(lambda: all(len(h.outputs) > count + 5 for h, count in zip(heard, counts, strict=True)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("token", [POISON, BAD_AT_DOOR])
async def test_a_request_that_crashes_replicas_is_stopped_after_the_first(tmp_path: Path, token: int) -> None:
    async with fleet(tmp_path, 3) as world:
        params = [SamplingParams(max_tokens=LONG, seed=i) for i in range(9)]
        innocent = [Heard(world.clients[i % 2], [i, 5], params[i]) for i in range(9)]
        await until(lambda: all(len(each.outputs) > 5 for each in innocent))
        poison = Heard(world.clients[0], [1, token, 2], SamplingParams(max_tokens=5))
        (output,) = await poison.all()
        assert output.finish == "error"
        assert "ended the engine" in (output.error or "")
        for i, each in enumerate(innocent):
            await check(each, [i, 5], params[i])
        assert sum(num > 0 for num in world.num_deaths) == 1
        await until(lambda: all(world.is_ready(replica) for replica in range(3)))
        again = SamplingParams(max_tokens=5, seed=3)
        for i in range(3):
            await check(Heard(world.clients[0], [i], again), [i], again)


async def test_a_drained_replica_is_left_and_taken_again(tmp_path: Path) -> None:
    params = [SamplingParams(max_tokens=2 * LONG, seed=i, n=1 + i % 2) for i in range(12)]
    async with fleet(tmp_path, 2) as world:
        heard = [Heard(world.clients[i % 2], [i, 9], params[i]) for i in range(12)]
        await until(lambda: all(each.outputs for each in heard))
        assert world.clients[0].replicas.drain(0, is_on=True)
        await until(lambda: 0 not in replicas_of([each for each in heard if each.generation._open]))
        await until(lambda: all(client.replicas._places[0].link.num_running == 0 for client in world.clients))
        late = Heard(world.clients[1], [77], params[0])
        assert late.generation.replica == 1
        for i, each in enumerate(heard):
            await check(each, [i, 9], params[i])
        assert world.clients[1].replicas.drain(0, is_on=False)
        await until(lambda: not any(client.replicas.roster.is_drained(0) for client in world.clients))
        assert replicas_of([Heard(world.clients[0], [i], params[0]) for i in range(4)]) == {0, 1}
        assert world.num_deaths == [0, 0]


@pytest.mark.nightly
@pytest.mark.parametrize("kills", [0, 2])
async def test_requests_that_wait_go_to_a_replica_that_has_become_free(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    params = [SamplingParams(max_tokens=LONG, seed=i, n=1 + i % 2) for i in range(80)]
    prompts = [[rng.randrange(POISON) for _ in range(300)] for _ in params]
    moved: list[tuple[str, bool]] = []
    async with fleet(tmp_path, 2, "least-loaded:rebalance=0.05") as world:
        for client in world.clients:
            client.on_moved = lambda why, with_kv: moved.append((why, with_kv))
        assert world.clients[0].replicas.drain(1, is_on=True)
        await until(lambda: all(client.replicas.roster.is_drained(1) for client in world.clients))
        heard = [Heard(world.clients[i % 2], *each) for i, each in enumerate(zip(prompts, params, strict=True))]
        assert replicas_of(heard) == {0}
        assert world.clients[0].replicas.drain(1, is_on=False)
        await until(lambda: ("rebalance", False) in moved)
        for kill in range(kills):
            world.engines[1 - kill].kill()
            await until(lambda kill=kill: not world.is_ready(1 - kill))
            await until(lambda kill=kill: world.is_ready(1 - kill))
        for each, prompt, param in zip(heard, prompts, params, strict=True):
            await check(each, prompt, param)
        assert moved.count(("rebalance", False)) > 8
        assert sum(world.num_deaths) == kills


async def test_when_all_replicas_drain_requests_stay(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2) as world:
        params = SamplingParams(max_tokens=LONG, seed=1)
        first = Heard(world.clients[0], [1], params)
        for replica in range(2):
            assert world.clients[0].replicas.drain(replica, is_on=True)
        await until(lambda: all(client.replicas.roster.is_drained(i) for client in world.clients for i in range(2)))
        await check(first, [1], params)
        await check(Heard(world.clients[0], [2], params), [2], params)


class Mute:
    """A link whose messages are kept."""

    is_remote = False

    def __init__(self) -> None:
        self.info = EngineInfo(LIMITS, "float32", "cpu")
        self.is_ready = True
        self.sent: list[object] = []

    def send(self, message: object) -> None:
        self.sent.append(message)


def muted(folder: Path, left: dict[int, InterruptedWork]) -> tuple[EngineClient, list[Mute]]:
    """Two replicas that are there."""
    client = EngineClient([f"ipc://{folder}/{i}" for i in range(2)], "one", look=left.get)
    links = [Mute(), Mute()]
    for replica, link in enumerate(links):
        client.replicas._places[replica].link = link  # type: ignore[assignment]
    for replica, link in enumerate(links):
        client.replicas._hear(replica, Ready(link.info))
    return client, links


def with_queue(folder: Path, count: int) -> tuple[EngineClient, list[Mute], list[Heard]]:
    """So many prompts of 30 tokens wait in the first replica; the other has just come."""
    client, links = muted(folder, {})
    client.replicas._hear(1, Draining(True))
    heard = [Heard(client, [i] * 30, ENDLESS) for i in range(count)]
    client.replicas._hear(1, Draining(False))
    return client, links, heard


async def test_only_the_last_of_the_queue_is_asked_to_leave_and_only_once(tmp_path: Path) -> None:
    client, links, heard = with_queue(tmp_path, 40)
    keys = [each.generation.key for each in heard]
    outputs = [Output(keys[39], 0, 7)]
    for look in range(4):
        client._rebalancing._next.clear()
        client.replicas._hear(0, Step(outputs if look == 0 else [], 4, 36, queued=36 * 30, num_taken=40))
    asked = [message.key for message in links[0].sent if isinstance(message, Recall)]
    assert asked == [*keys[23:39], *keys[19:23]]  # half of the load: 36 prompts of 30 tokens, and 4 that run
    client.replicas._hear(0, Moved(keys[38]))
    assert heard[38].generation.replica == 1
    assert heard[38].generation.key not in keys
    assert [message.prompt for message in links[1].sent if isinstance(message, Submit)] == [[38] * 30]


async def test_a_request_that_was_kept_is_not_taken_for_one_that_goes(tmp_path: Path) -> None:
    client, links, heard = with_queue(tmp_path, 20)
    client.replicas._hear(0, Step([], 0, 20, queued=20 * 30, num_taken=20))
    asked = [message.key for message in links[0].sent if isinstance(message, Recall)]
    assert asked == [each.generation.key for each in heard[10:]]
    for key in asked:
        client.replicas._hear(0, Kept(key))
    client._rebalancing._next.clear()
    client.replicas._hear(0, Step([], 0, 20, queued=20 * 30, num_taken=20))
    again = [message.key for message in links[0].sent if isinstance(message, Recall)][len(asked) :]
    assert again == [each.generation.key for each in heard[:10]]


async def test_what_has_come_from_another_replica_does_not_count_as_going(tmp_path: Path) -> None:
    client, links, heard = with_queue(tmp_path, 20)
    client.replicas._hear(0, Step([], 0, 20, queued=20 * 30, num_taken=20))
    for message in list(links[0].sent):
        if isinstance(message, Recall):
            client.replicas._hear(0, Moved(message.key))
    more = [Heard(client, [50 + i] * 30, ENDLESS) for i in range(10)]
    for each in [each for each in more if each.generation.replica == 0]:
        each.generation.abort()
    client.replicas._hear(0, Step([], 0, 0, queued=0, num_taken=30))
    there = [each.generation for each in [*heard, *more] if each.generation.replica == 1 and each.generation._open]
    client._rebalancing._next.clear()
    client.replicas._hear(1, Step([], 0, len(there), queued=30 * len(there), num_taken=len(there)))
    asked = [message.key for message in links[1].sent if isinstance(message, Recall)]
    own = [each.generation.key for each in more if each.generation.replica == 1]
    assert asked == own[-len(asked) :]
    assert len(asked) == min(len(own), len(there) // 2)


async def test_a_drained_replica_whose_engine_dies_is_drained_again(tmp_path: Path) -> None:
    client, links = muted(tmp_path, {1: InterruptedWork({}, was_killed=True)})
    client.replicas._hear(1, Draining(True))
    client.replicas._lose(1)
    client.replicas._hear(1, Ready(links[1].info))
    assert links[1].sent == [Drain(True)]
    assert {Heard(client, [1, 2], ENDLESS).generation.replica for _ in range(4)} == {0}
    client.replicas._hear(1, Draining(False))
    client.replicas._lose(1)
    client.replicas._hear(1, Ready(links[1].info))
    assert Drain(True) not in links[1].sent[1:]
    assert 1 in {Heard(client, [1, 2], ENDLESS).generation.replica for _ in range(9)}


async def test_a_drain_moves_no_request_that_may_have_crashed_the_replica(tmp_path: Path) -> None:
    left: dict[int, InterruptedWork] = {}
    client, links = muted(tmp_path, left)
    heard = [Heard(client, [1, 2], ENDLESS) for _ in range(4)]
    suspects = [each.generation for each in heard if each.generation.replica == 1]
    left[1] = InterruptedWork({b"one": [each.key for each in suspects]}, was_killed=False)
    client.replicas._lose(1)
    client.replicas._hear(1, Ready(links[1].info, suspects=[each.key for each in suspects]))
    links[0].sent.clear()
    client.replicas._hear(1, Draining(True))
    assert len(suspects) == 2
    assert {each.replica for each in suspects} == {1}
    assert not links[0].sent
