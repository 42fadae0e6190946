"""Requests that wait until their adapter has been read from the disk, by a thread beside the engine.

Always: adapters are read one after the other, in the order in which they were first asked for, and only while there is
room for another beside those in use. A request that is held is neither in the engine nor lost. Knows no files.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig
from chairlift.core.ports import AdapterMemory
from chairlift.live.adapters.registry import Adapter
from chairlift.live.wire.messages import Submit

FrontEnd = bytes


class HeldRequest(NamedTuple):
    front_end: FrontEnd
    message: Submit


class AdapterReading:
    def __init__(self, memory: AdapterMemory, is_used: Callable[[int], bool]) -> None:
        """`is_used`: by requests in the engine."""
        self._memory = memory
        self._is_used = is_used
        self.held: dict[int, list[HeldRequest]] = {}  # by adapter, in order
        self._paths: dict[int, str] = {}
        self._read: tuple[int, Future[None]] | None = None  # under way
        self._thread = ThreadPoolExecutor(1, "adapters")
        self.woken, self._waker = os.pipe()  # readable when the thread has done something
        os.set_blocking(self.woken, False)
        os.set_blocking(self._waker, False)

    @property
    def num_held(self) -> int:
        return sum(map(len, self.held.values()))

    def holds(self, front_end: FrontEnd, message: Submit, adapter: Adapter) -> bool:
        """Whether the request has to wait; it is held then."""
        if self._memory.use(adapter.number) and adapter.number not in self.held:
            return False
        self.held.setdefault(adapter.number, []).append(HeldRequest(front_end, message))
        self._paths[adapter.number] = adapter.path
        self.begin()
        return True

    def begin(self) -> None:
        """Reads the next adapter, if none is being read and there is room; also to be called when requests have
        ended."""
        while self._read is None and self.held:
            adapter = next(iter(self.held))
            if not self.held[adapter]:  # all were aborted
                self._forget(adapter)
                continue
            if not self._memory.make_room(self._is_used):
                return
            future = self._thread.submit(self._memory.read, adapter, self._paths[adapter])
            future.add_done_callback(lambda _: self._wake())
            self._read = adapter, future

    def take(self) -> list[tuple[HeldRequest, str | None]]:
        """Requests that wait no longer, with the reason where their adapter cannot be read. Until these are in the
        engine nothing else may `begin`: that could forget their adapter."""
        with suppress(BlockingIOError):
            os.read(self.woken, 4096)
        done: list[tuple[HeldRequest, str | None]] = []
        if self._read is not None and self._read[1].done():
            (adapter, read), self._read = self._read, None
            error = read.exception()
            if error is not None and not isinstance(error, InvalidConfig):
                raise error
            done = [(held, None if error is None else str(error)) for held in self._forget(adapter)]
        return done

    def wait(self) -> bool:
        """Until the read that is under way has ended; False when there is none."""
        if self._read is None:
            return False
        self._read[1].exception()
        return True

    def drop(self, adapter: int) -> bool:
        """Forgets an adapter that nothing uses; False while something does."""
        if adapter in self.held or self._is_used(adapter):
            return False
        self._memory.drop(adapter)
        return True

    def remove(self, is_gone: Callable[[HeldRequest], bool]) -> list[HeldRequest]:
        """Takes held requests out."""
        removed = [each for held in self.held.values() for each in held if is_gone(each)]
        for held in self.held.values():
            held[:] = [each for each in held if each not in removed]
        return removed

    def _forget(self, adapter: int) -> list[HeldRequest]:
        self._paths.pop(adapter, None)
        return self.held.pop(adapter, [])

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # it is full, so the engine will wake
            os.write(self._waker, b" ")
