"""Adapters that are offered no more, until all replicas have forgotten them."""

import asyncio
from collections.abc import Callable

_LOOK_S = 0.05  # between two looks whether a request has an adapter


class _Asked:
    def __init__(self) -> None:
        self.replicas: set[int] = set()  # that have not forgotten it
        self.done = asyncio.Event()


class Unloads:
    def __init__(self, ask: Callable[[int], list[int]], is_used: Callable[[int], bool]) -> None:
        """`ask`: asks all replicas that are there to forget an adapter; these. `is_used`: by a request of this front
        end."""
        self._ask = ask
        self._is_used = is_used
        self._asked: dict[int, _Asked] = {}  # by adapter

    async def wait(self, adapter: int) -> None:
        """Returns when its last request has ended."""
        while True:
            asked = self._asked.setdefault(adapter, _Asked())
            asked.replicas.update(self._ask(adapter))
            if asked.replicas:
                await asked.done.wait()
            self._asked.pop(adapter, None)
            if not self._is_used(adapter):
                return
            await asyncio.sleep(_LOOK_S)  # some wait for an engine

    def hear(self, replica: int, adapter: int) -> None:
        """A replica has forgotten it."""
        if adapter in self._asked:
            self._without(self._asked[adapter], replica)

    def lose(self, replica: int) -> None:
        """A replica is gone, and so is what it had read."""
        for asked in self._asked.values():
            self._without(asked, replica)

    @staticmethod
    def _without(asked: _Asked, replica: int) -> None:
        asked.replicas.discard(replica)
        if not asked.replicas:
            asked.done.set()
