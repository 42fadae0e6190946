"""Adapters in the host's memory: the file of each as it is stored, and all by number, read when first asked for,
forgotten least recently used first.

Always: a file was read whole, and is the one whose header was read. An adapter that is in use stays. All fit the memory
that is given, but for the last one read, and for as many as the device holds: with fewer, it would wait for some that
it has to be read again. Several threads may read and ask.
"""

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.adapters.adapter import AdapterSpec, LowRankPart
from chairlift.models.adapters.header import state_of
from chairlift.runner.machine import hardware
from chairlift.runner.weights.source import in_order


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


_PIECE = 4 << 20  # bytes
_MAX_THREADS = 8
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class StoredAdapter:
    """Read by several threads: touching memory for the first time takes longer than copying to it."""

    def __init__(self, spec: AdapterSpec) -> None:
        self._tensors = spec.header.tensors
        # Not torch's: it asks for huge pages, which take longer to get than all the small ones.
        memory = mmap.mmap(-1, max(1, spec.header.num_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with spec.file.open("rb", buffering=0) as file:
            _read_whole(file.fileno(), memoryview(memory), spec)
        self._bytes = torch.frombuffer(memory, dtype=torch.uint8)

    def part(self, part: LowRankPart) -> tuple[Tensor, Tensor]:
        """A and B as they are stored, without the factor; A's columns and B's rows as the model has them."""
        (down, up), place = map(self._tensor, part.tensors), part.place
        return in_order(down.t(), place.columns).t(), in_order(up, place.order)

    def _tensor(self, name: str) -> Tensor:
        dtype, shape, first, end = self._tensors[name]
        return self._bytes[first:end].view(_DTYPES[dtype]).view(shape)


def _read_whole(descriptor: int, memory: memoryview, spec: AdapterSpec) -> None:
    size, start = spec.header.num_bytes, spec.header.start
    firsts = iter(range(0, size, _PIECE))
    num_threads = max(1, min(_MAX_THREADS, hardware.num_cpus(), size // _PIECE))
    with ThreadPoolExecutor(num_threads, "adapter") as threads:
        parts = [threads.submit(_read, descriptor, memory[:size], start, firsts) for _ in range(num_threads)]
    for part in parts:
        part.result()
    if state_of(descriptor) != spec.header.state:
        raise InvalidConfig(f"{spec.file}: was changed while it was read; ask again")


def _read(descriptor: int, memory: memoryview, start: int, firsts: Iterator[int]) -> None:
    for first in firsts:
        end = min(first + _PIECE, len(memory))
        while first < end:
            count = os.preadv(descriptor, [memory[first:end]], start + first)
            if not count:
                return  # it was cut meanwhile, which its state will show
            first += count
