"""Front end and engine joined by a real socket; the engine on the ledger runner, in a process of its own."""

import asyncio
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq

from chairlift.core.errors import EngineUnavailable
from chairlift.core.params import SamplingParams
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.link import Link
from chairlift.live.wire.messages import Output, Step
from fakes import ledger_process
from fakes.heard import Heard, connected
from fakes.ledger import expected
from fakes.patience import until
from fakes.requests import make_request
from fakes.switchboards import VOCAB_SIZE

ENDLESS = SamplingParams(max_tokens=50_000, ignore_eos=True)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"ipc://{tmp_path_factory.mktemp('wire')}/engine"


@pytest.fixture(scope="module")
def engine(address: str) -> Iterator[subprocess.Popen[bytes]]:
    process = ledger_process.start(address)
    yield process
    process.kill()
    process.wait()


@pytest.mark.usefixtures("engine")
class TestLiveEngine:
    async def test_the_client_learns_the_limits(self, address: str) -> None:
        async with connected(address) as client:
            assert client.info is not None
            assert client.info.limits.vocab_size == VOCAB_SIZE
            assert client.info.device == "ledger"

    async def test_many_generations_at_once_each_get_their_own_tokens(self, address: str) -> None:
        prompts = [[i, i + 1, i + 2] for i in range(200)]
        async with connected(address) as client:
            heard = [Heard(client, p, SamplingParams(max_tokens=12, seed=p[0])) for p in prompts]
            got = [await each.tokens() for each in heard]
        assert got == [expected(make_request(1, p, 12, seed=p[0]), VOCAB_SIZE) for p in prompts]

    async def test_two_front_ends_do_not_hear_each_other(self, address: str) -> None:
        async with connected(address, "one") as one, connected(address, "two") as two:
            a = Heard(one, [1, 2], SamplingParams(max_tokens=9, seed=1))
            b = Heard(two, [3, 4], SamplingParams(max_tokens=9, seed=2))
            got = [await a.tokens(), await b.tokens()]
        assert got == [
            expected(make_request(1, [1, 2], 9, seed=1), VOCAB_SIZE),
            expected(make_request(1, [3, 4], 9, seed=2), VOCAB_SIZE),
        ]

    async def test_an_abort_frees_the_request_and_the_numbers_show_it(self, address: str) -> None:
        async with connected(address) as client:
            heard = Heard(client, [1, 2, 3], ENDLESS)
            await heard.any()
            assert client.num_running == 1
            heard.generation.abort()
            heard.generation.abort()
            count = len(heard.outputs)
            await until(lambda: client.num_running == 0)
            assert len(heard.outputs) == count

    async def test_the_other_front_end_sees_the_numbers_too(self, address: str) -> None:
        async with connected(address, "one") as one, connected(address, "two") as two:
            heard = Heard(one, [1, 2, 3], ENDLESS)
            await until(lambda: two.num_running == 1)
            heard.generation.abort()
            await until(lambda: two.num_running == 0)

    async def test_aborting_one_sample_leaves_the_others(self, address: str) -> None:
        async with connected(address) as client:
            heard = Heard(client, [1, 2, 3], SamplingParams(max_tokens=1_000, n=2, seed=6, ignore_eos=True))
            await heard.any()
            heard.generation.abort_sample(1)
            count = len(heard.outputs)
            await until(lambda: client.num_running == 0)
        tokens = expected(make_request(1, [1, 2, 3], 1_000, seed=6), VOCAB_SIZE)
        assert [o.token for o in heard.outputs if o.sample == 0] == tokens
        assert not any(o.sample == 1 for o in heard.outputs[count:])

    async def test_a_front_end_that_leaves_frees_its_requests(self, address: str) -> None:
        async with connected(address, "stays") as stays:
            async with connected(address, "leaves") as leaves:
                Heard(leaves, [1, 2, 3], ENDLESS)
                await until(lambda: stays.num_running == 1)
            await until(lambda: stays.num_running == 0)

    async def test_a_refusal_comes_as_an_output(self, address: str) -> None:
        async with connected(address) as client:
            (output,) = await Heard(client, [1] * 200_000, SamplingParams()).all()
        assert (output.finish, output.error_field) == ("error", "prompt")

    async def test_an_idle_engine_uses_no_processor_time(self, address: str, engine: subprocess.Popen[bytes]) -> None:
        async with connected(address) as client:
            await Heard(client, [1, 2], SamplingParams(max_tokens=3)).all()
            process = psutil.Process(engine.pid)
            taken = [sum(process.cpu_times()[:2])]
            for _ in range(4):  # it may tidy up once
                await asyncio.sleep(0.5)
                taken.append(sum(process.cpu_times()[:2]))
        assert min(after - before for before, after in pairwise(taken)) <= 0.01


async def test_others_run_between_the_parts_of_a_large_step(tmp_path: Path) -> None:
    address, encode = f"ipc://{tmp_path}/engine", msgspec.msgpack.Encoder().encode
    steps, seen = list[Step](), set[int]()
    engine = zmq.Context.instance().socket(zmq.ROUTER)
    engine.bind(address)
    link = asyncio.ensure_future(Link(address, "front", steps.append, lambda: None).run())  # type: ignore[arg-type]
    await until(lambda: engine.poll(0))
    name, _ = engine.recv_multipart()
    outputs = [Output(1, sample, None, error="x" * 2_000) for sample in range(100)]
    engine.send_multipart([name, encode(Step(outputs, 3, 4))])
    while sum(len(step.outputs) for step in steps) < 100:
        seen.add(sum(len(step.outputs) for step in steps))
        await asyncio.sleep(0)
    assert len(seen) > 10
    assert [output for step in steps for output in step.outputs] == outputs
    link.cancel()
    engine.close(0)


async def test_before_the_engine_is_there_requests_are_refused_at_once(tmp_path: Path) -> None:
    client = EngineClient([f"ipc://{tmp_path}/none"], "front-end")
    running = asyncio.ensure_future(client.replicas.run())
    await asyncio.sleep(0.05)
    with pytest.raises(EngineUnavailable):
        Heard(client, [1], SamplingParams())
    running.cancel()


async def test_when_no_engine_will_come_waiting_requests_fail_and_new_ones_are_refused(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/engine"
    process = ledger_process.start(address)
    async with connected(address) as client:
        heard = [Heard(client, [i, 1], ENDLESS) for i in range(5)]
        for each in heard:
            await each.any()
        process.kill()
        process.wait()
        client.give_up()
        assert all(isinstance(each.error, EngineUnavailable) for each in heard)
        with pytest.raises(EngineUnavailable):
            Heard(client, [1, 2], SamplingParams())
