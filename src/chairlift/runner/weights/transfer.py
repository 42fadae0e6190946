"""Copies weights to the device.

To a GPU they go in pieces on several lanes: a thread reads the mapped file into pinned memory, and the device fetches
that while the thread fills another buffer.

    file, mapped  ->  thread 0: buffers 0 1  ->  device
                      thread 1: buffers 0 1  ->

Always: when `copy` returns, the target holds the tensor, rounded to its type. The host needs only the buffers.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PIECE = 4 * 2**20  # bytes
NUM_BUFFERS = 2
_MAX_LANES = 8


class CudaLane:
    """One thread's way to the device, with buffers that take turns."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._buffers = [torch.empty(PIECE, dtype=torch.uint8, pin_memory=True) for _ in range(NUM_BUFFERS)]
        self._fetched = [torch.cuda.Event() for _ in range(NUM_BUFFERS)]

    def mark(self) -> torch.cuda.Event:
        """What was launched until now, on the stream of this thread."""
        event = torch.cuda.Event()
        event.record()
        return event

    def start(self, after: torch.cuda.Event | None = None) -> None:
        """Has later work wait for a mark; None: for all that was launched on the device before."""
        if after is None:
            self._stream.wait_stream(torch.cuda.default_stream(self._device))
        else:
            self._stream.wait_event(after)

    def buffer(self, turn: int) -> Tensor:
        """PIECE bytes, once the device has fetched what they held."""
        self._fetched[turn].synchronize()
        return self._buffers[turn]

    def send(self, part: Tensor, turn: int, target: Tensor) -> None:
        """Has the device fetch a part of a buffer, without waiting for it; rounds on the device."""
        with torch.cuda.stream(self._stream):
            target.copy_(part if part.dtype is target.dtype else part.to(self._device, non_blocking=True),
                         non_blocking=True)  # fmt: skip
            self._fetched[turn].record()

    def drain(self) -> None:
        """Returns when the device has everything."""
        self._stream.synchronize()


class Transfer:
    def __init__(self, make_lanes: Callable[[], list[CudaLane]] | None) -> None:
        """Lanes are made on first use. None: torch copies one tensor after the other."""
        self._make_lanes = make_lanes
        self._lanes: list[CudaLane] = []
        self._threads: ThreadPoolExecutor | None = None

    def copy(self, source: Tensor, target: Tensor) -> None:
        """`target` is contiguous."""
        if self._make_lanes is None or source.device == target.device or source.nbytes <= PIECE:
            target.copy_(source)
            return
        if self._threads is None:
            self._lanes = self._make_lanes()
            self._threads = ThreadPoolExecutor(len(self._lanes), "load")
        stored, flat = source.contiguous().flatten(), target.view(-1)
        # All lanes take from one iterator, so faster ones carry more.
        firsts = iter(range(0, len(stored), PIECE // stored.itemsize))
        for done in [self._threads.submit(carry, lane, stored, flat, firsts) for lane in self._lanes]:
            done.result()

    def copy_changed(self, source: Tensor, target: Tensor, change: Callable[[Tensor], Tensor]) -> None:
        """The same of what `change` makes of the source, on the target's device."""
        moved = torch.empty(source.shape, dtype=source.dtype, device=target.device)
        self.copy(source, moved)
        target.copy_(change(moved))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()


def transfer_to(device: torch.device, num_threads: int) -> Transfer:
    if device.type != "cuda":
        return Transfer(None)
    return Transfer(lambda: [CudaLane(device) for _ in range(min(num_threads, _MAX_LANES))])


def carry(
    lane: CudaLane, stored: Tensor, target: Tensor, firsts: Iterator[int], after: torch.cuda.Event | None = None
) -> None:
    """The pieces that begin at these places; returns when the device has them. `after`: as of `start`."""
    count = PIECE // stored.itemsize
    lane.start(after)
    for i, low in enumerate(firsts):
        turn, piece = i % NUM_BUFFERS, stored[low : low + count]
        part = lane.buffer(turn)[: piece.nbytes]
        np.copyto(_bytes(part), _bytes(piece))  # by one thread, and without the interpreter's lock
        lane.send(part.view(stored.dtype), turn, target[low : low + count])
    lane.drain()


def _bytes(tensor: Tensor) -> NDArray[np.uint8]:
    return tensor.view(torch.uint8).numpy()
