"""Requests outlive their engine: killed at random moments, restarted, ended by a poisoned request."""

import asyncio
import gc
import random
import weakref
from pathlib import Path

import pytest

from chairlift.core.params import SamplingParams
from chairlift.live.wire.client import EngineClient
from fakes.heard import Heard, connected
from fakes.ledger_process import BAD_AT_DOOR, POISON, Restarted, note_at
from fakes.patience import until
from fakes.resumed import KINDS, LONG, check, wanted

ENDLESS = SamplingParams(max_tokens=50_000, ignore_eos=True)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/engine"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(2))
async def test_engines_killed_at_random_moments_cost_no_token_and_repeat_none(address: str, seed: int) -> None:
    rng = random.Random(seed)
    asked = []
    for i in range(28):
        prompt = [rng.randrange(POISON) for _ in range(rng.choice([1, 2, 20]))]
        more = {"max_tokens": rng.randint(LONG // 2, LONG), "seed": i} | KINDS[i % len(KINDS)]
        asked.append((prompt, SamplingParams(**more)))
    async with Restarted(address) as engines, connected(address, "one") as one, connected(address, "two") as two:
        heard = [Heard((one, two)[i % 2], *each) for i, each in enumerate(asked)]
        for _ in range(4):
            before = sum(len(each.outputs) for each in heard)
            await until(lambda before=before: sum(len(each.outputs) for each in heard) > before + 60)
            await asyncio.sleep(rng.random() * 0.05)
            engines.kill()
            await until(lambda: not one.is_ready)
        for each, (prompt, params) in zip(heard, asked, strict=True):
            await check(each, prompt, params)
        await until(lambda: one.num_running == one.num_waiting == 0)
        assert engines.num_deaths == 4


async def test_without_a_seed_every_engine_draws_with_the_same(address: str) -> None:
    """The ledger's tokens depend on the seed, so another one would be seen; it is told by the tokens that came."""
    async with Restarted(address) as engines, connected(address) as client:
        heard = Heard(client, [1, 2, 3], SamplingParams(max_tokens=LONG, n=2))
        await until(lambda: len(heard.outputs) > 20)
        seed = heard.generation._submit.params.seed
        engines.kill()
        await check(heard, [1, 2, 3], SamplingParams(max_tokens=LONG, n=2, seed=seed))
        assert engines.num_deaths == 1


async def test_requests_that_come_while_there_is_no_engine_wait_for_the_next(address: str) -> None:
    async with Restarted(address) as engines, connected(address) as client:
        engines.kill()
        await until(lambda: not client.is_ready)
        assert client.info is not None
        heard = Heard(client, [1, 2], SamplingParams(max_tokens=5, seed=3))
        await check(heard, [1, 2], SamplingParams(max_tokens=5, seed=3))


async def test_a_request_aborted_while_there_is_no_engine_is_not_submitted_again(address: str) -> None:
    params = SamplingParams(max_tokens=LONG, n=2, seed=4)
    async with Restarted(address) as engines, connected(address) as client:
        leaves, new = Heard(client, [1, 2], ENDLESS), None
        half, stays = Heard(client, [5], params), Heard(client, [6], params)
        await until(lambda: all(len(each.outputs) > 10 for each in (leaves, half, stays)))
        engines.kill()
        await until(lambda: not client.is_ready)
        new = Heard(client, [7], ENDLESS)
        leaves.generation.abort()
        new.generation.abort()
        half.generation.abort_sample(1)
        count = len([output for output in half.outputs if output.sample == 1])
        await check(stays, [6], params)
        await until(lambda: client.num_running == client.num_waiting == 0)
        assert [output.token for output in half.outputs if output.sample == 0] == wanted([5], params)[0]
        assert len([output for output in half.outputs if output.sample == 1]) == count
        assert new.outputs == []


async def test_what_is_kept_of_a_request_goes_with_it(address: str) -> None:
    async with Restarted(address) as engines, connected(address) as client:
        heard = [Heard(client, [i], SamplingParams(max_tokens=LONG)) for i in range(4)]
        kept = [weakref.ref(each) for each in heard]
        heard[3].generation.abort()
        engines.kill()
        for each in heard[:3]:
            await each.all()
        heard.clear()
        del each
        gc.collect()
        assert [ref() for ref in kept] == [None] * 4


async def test_what_is_held_for_a_slow_reader_is_neither_lost_nor_made_again(address: str) -> None:
    short, long = SamplingParams(max_tokens=30, seed=3, n=2), SamplingParams(max_tokens=LONG, seed=4)
    async with Restarted(address) as engines, connected(address) as client:
        ended, open_ = Heard(client, [1], short), Heard(client, [2], long)
        other = Heard(client, [3], long)
        ended.generation.hold()  # at once: it may be over before the next look
        await until(lambda: open_.outputs)
        open_.generation.hold()
        await until(lambda: len(other.outputs) > 60)  # by now one of the held is over, and the other is not
        engines.kill()
        await check(other, [3], long)
        assert not ended.outputs
        ended.generation.release()
        open_.generation.release()
        await check(ended, [1], short)
        await check(open_, [2], long)


async def poison_beside(client: EngineClient, count: int, token: int) -> tuple[Heard, list[Heard]]:
    innocent = [Heard(client, [i, 5], SamplingParams(max_tokens=LONG, seed=i, n=1 + i % 2)) for i in range(count)]
    await until(lambda: all(len(each.outputs) > 5 for each in innocent))
    return Heard(client, [1, token, 2], SamplingParams(max_tokens=5)), innocent


@pytest.mark.sampled(1)
@pytest.mark.parametrize("count", [0, 6])
@pytest.mark.parametrize("token", [POISON, BAD_AT_DOOR])
async def test_a_request_that_ends_the_engine_again_and_again_fails_alone(address: str, count: int, token: int) -> None:
    async with Restarted(address) as engines, connected(address, "one") as one, connected(address, "two") as two:
        poison, innocent = await poison_beside(one, count, token)
        other = Heard(two, [9, 9], SamplingParams(max_tokens=LONG, seed=1)) if count else None
        (output,) = await poison.all()
        assert output.finish == "error"
        assert output.error is not None
        assert "ended the engine twice" in output.error
        for i, each in enumerate(innocent):
            await check(each, [i, 5], SamplingParams(max_tokens=LONG, seed=i, n=1 + i % 2))
        if other is not None:
            await check(other, [9, 9], SamplingParams(max_tokens=LONG, seed=1))
        assert engines.num_deaths == (4 if count and token == POISON else 2)
        note = note_at(address)
        await until(lambda: note.progress > 0)  # also where nothing made a token
        assert (
            await Heard(one, [3], SamplingParams(max_tokens=5, seed=3)).tokens()
            == wanted([3], SamplingParams(max_tokens=5, seed=3))[0]
        )
