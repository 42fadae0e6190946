"""Work on clients' texts and shapes: in a thread that keys take turns in, and not for clients that are gone or late."""

import asyncio
import time

import pytest

from chairlift.server.admission.cost import Cost
from chairlift.server.admission.rejected import OutOfTime
from chairlift.server.encoder import Turns


async def test_a_key_with_much_work_does_not_hold_up_one_with_little() -> None:
    turns, done = Turns("test"), list[str]()

    def work(name: str) -> None:
        time.sleep(0.002)
        done.append(name)

    many = [asyncio.ensure_future(turns.do(lambda: work("many"), Cost("many"))) for _ in range(20)]
    await asyncio.sleep(0)
    await turns.do(lambda: work("few"), Cost("few"))
    assert done.count("many") < 5
    await turns.do(lambda: work("few"), Cost("few"))
    assert done.count("many") < 10
    await asyncio.gather(*many)


async def test_work_that_nobody_waits_for_is_not_begun_and_the_next_one_is() -> None:
    def late() -> None:
        raise OutOfTime

    turns, done = Turns("test"), list[str]()
    first = asyncio.ensure_future(turns.do(lambda: time.sleep(0.01), Cost()))
    left = asyncio.ensure_future(turns.do(lambda: done.append("left"), Cost()))
    too_late = asyncio.ensure_future(turns.do(lambda: done.append("late"), Cost(check=late)))
    last = asyncio.ensure_future(turns.do(lambda: done.append("last"), Cost()))
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(OutOfTime):
        await too_late
    await asyncio.gather(first, last)
    assert done == ["last"]
    with pytest.raises(OutOfTime):
        await turns.do(lambda: None, Cost(check=late))
    await turns.do(lambda: done.append("again"), Cost())
    assert done == ["last", "again"]
