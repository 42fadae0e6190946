"""Adapters in the host's memory, by number: read when first asked for, forgotten least recently used first.

Always: one that is in use stays. All fit the memory that is given, but for the last one read, and for as many as the
device holds: with fewer, it would wait for some that it has to be read again. Several threads may read and ask.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from chairlift.core.errors import InvalidConfig


class Sized(Protocol):
    @property
    def num_bytes(self) -> int: ...


A = TypeVar("A", bound=Sized)


class AdapterStore(Generic[A]):
    def __init__(self, read: Callable[[Path], A], max_bytes: int, max_rank: int = 64, num_slots: int = 1) -> None:
        """`read` raises `InvalidConfig`, and for an adapter of a higher rank. num_slots: of the device."""
        self.max_rank = max_rank
        self._num_slots = num_slots
        self._read = read
        self._max_bytes = max_bytes
        self._kept: OrderedDict[int, A] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def __contains__(self, adapter: int) -> bool:
        with self._lock:
            return adapter in self._kept

    def use(self, adapter: int) -> bool:
        with self._lock:
            if adapter in self._kept:
                self._kept.move_to_end(adapter)
            return adapter in self._kept

    @property
    def num_bytes(self) -> int:
        with self._lock:
            return sum(each.num_bytes for each in self._kept.values())

    def read(self, adapter: int, path: str) -> None:
        """From its folder; in any thread."""
        if adapter in self:
            return
        try:
            found = self._read(Path(path))
        except (OSError, RuntimeError, MemoryError) as error:
            raise InvalidConfig(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
        with self._lock:
            self._kept[adapter] = found

    def get(self, adapter: int) -> A:
        with self._lock:
            self._kept.move_to_end(adapter)
            return self._kept[adapter]

    def drop(self, adapter: int) -> None:
        with self._lock:
            self._kept.pop(adapter, None)

    def make_room(self, is_used: Callable[[int], bool]) -> bool:
        """Forgets adapters that are not used, until there is room for another; whether there is."""
        with self._lock:
            taken = sum(each.num_bytes for each in self._kept.values())
            unused = iter([adapter for adapter in self._kept if not is_used(adapter)])
            while taken >= self._max_bytes and len(self._kept) >= self._num_slots:
                if (adapter := next(unused, None)) is None:
                    return False
                taken -= self._kept.pop(adapter).num_bytes
            return True
