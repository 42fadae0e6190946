"""How long a test waits for what must come. Only a hang takes as long, however slow and busy the machine."""

import asyncio
import time
from collections.abc import Callable

HANG_S = 300.0


def wait_until(is_so: Callable[[], object], told: Callable[[], object] = str) -> None:
    """`told` gives what to say when it does not come about."""
    deadline = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < deadline, f"it did not come about: {told()}"
        time.sleep(0.01)


async def turns(count: int = 200) -> None:
    """Lets the loop turn: what needs no more than some turns of it has come about, however long they took."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.005)
