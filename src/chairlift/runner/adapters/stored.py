"""The file of an adapter in the host's memory, as it is stored.

Always: it was read whole, and is the file whose header was read. Several threads read it: touching memory for the first
time takes longer than copying to it.
"""

import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.adapters.adapter import AdapterSpec, LowRankPart
from chairlift.models.adapters.header import state_of
from chairlift.runner.machine import hardware
from chairlift.runner.weights.source import in_order

_PIECE = 4 << 20  # bytes
_MAX_THREADS = 8
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class StoredAdapter:
    def __init__(self, spec: AdapterSpec) -> None:
        self._tensors = spec.header.tensors
        # Not torch's: it asks for huge pages, which take longer to get than all the small ones.
        memory = mmap.mmap(-1, max(1, spec.header.num_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with spec.file.open("rb", buffering=0) as file:
            _read_whole(file.fileno(), memoryview(memory), spec)
        self._bytes = torch.frombuffer(memory, dtype=torch.uint8)

    def part(self, part: LowRankPart) -> tuple[Tensor, Tensor]:
        """A and B as they are stored, B's rows as the model has them and without the factor."""
        down, up = map(self._tensor, part.tensors)
        return down, in_order(up, part.place.order)

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
