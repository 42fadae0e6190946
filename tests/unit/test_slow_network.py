"""The slow network of the stress tests: late and at a rate, and every byte in its order."""

import asyncio
import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    path = Path(__file__).parents[1] / "stress" / "slow_network.py"
    spec = importlib.util.spec_from_file_location("slow_network", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["slow_network"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


slow_network = _load()


def test_a_line_takes_its_time_for_the_bytes_of_all_connections() -> None:
    line = slow_network.Line(random.Random(0))
    line.weather = slow_network.Weather(delay_s=0.5, bytes_per_s=1000)
    assert [line.arrival(1000, 0.0), line.arrival(500, 0.25), line.arrival(1000, 9.0)] == [1.5, 2.0, 10.5]


def test_jitter_is_added_to_the_delay() -> None:
    line = slow_network.Line(random.Random(0))
    line.weather = slow_network.Weather(delay_s=1.0, jitter_s=0.5)
    arrivals = [line.arrival(1, 0.0) for _ in range(50)]
    assert 1.0 <= min(arrivals) < 1.1 and 1.4 < max(arrivals) <= 1.5


@pytest.mark.parametrize("seed", range(3))
def test_every_byte_arrives_in_its_order(seed: int) -> None:
    asyncio.run(_echo(random.Random(seed)))


async def _echo(rng: random.Random) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()
        await writer.wait_closed()

    echo = await asyncio.start_server(answer, "127.0.0.1", 0)
    listener = slow_network.End("", "127.0.0.1", 0).socket()
    with listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    far = slow_network.End("", *echo.sockets[0].getsockname())
    hop = slow_network.Hop(slow_network.End("", "127.0.0.1", port), far, rng)
    await hop.open()
    hop.change(slow_network.Weather(delay_s=0.001, jitter_s=0.003, stall_s=0.01), asyncio.get_running_loop().time())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = rng.randbytes(200_000)
    writer.write(sent)
    writer.write_eof()
    assert await reader.read() == sent
    writer.close()
    await writer.wait_closed()
    for each in (hop, echo):
        each.close()
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
