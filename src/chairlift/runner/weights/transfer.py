"""Copies weights, and adapters, to the device.

To a GPU they go in pieces on several lanes: a thread reads the mapped file into pinned memory, and the device fetches
that while the thread fills another buffer.

    file, mapped  ->  thread 0: buffers 0 1  ->  device
                      thread 1: buffers 0 1  ->

Always: when `copy` returns, the target holds the tensor, rounded to its type. The host needs only the buffers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

PIECE = 4 * 2**20  # bytes
NUM_BUFFERS = 2
_MAX_LANES = 8
T = TypeVar("T")
Launch = Callable[[], object]  # the device's part, on the stream of a lane


class Buffer(NamedTuple):
    pinned: Tensor  # PIECE bytes
    fetched: Tensor | None  # as many on the device, for what is not copied to its place at once


Fill = Callable[[T, Buffer], Launch]  # puts a piece into a buffer


class CudaLane:
    """One thread's way to the device, with buffers that take turns."""

    def __init__(self, device: torch.device, fetches: bool) -> None:
        """fetches: its buffers have memory on the device too."""
        self._stream = torch.cuda.Stream(device)
        self._buffers = [
            Buffer(
                torch.empty(PIECE, dtype=torch.uint8, pin_memory=True),
                torch.empty(PIECE, dtype=torch.uint8, device=device) if fetches else None,
            )
            for _ in range(NUM_BUFFERS)
        ]
        # Waited for without keeping a core busy.
        self._done = [torch.cuda.Event(blocking=True) for _ in range(NUM_BUFFERS)]

    def mark(self) -> torch.cuda.Event:
        """What was launched until now, on the stream of this thread."""
        event = torch.cuda.Event()
        event.record()
        return event

    def run(self, launch: Launch) -> torch.cuda.Event:
        """By itself; what marks its end."""
        with torch.cuda.stream(self._stream):
            launch()
            return self.mark()

    def start(self, after: torch.cuda.Event | None = None) -> None:
        """Has later work wait for a mark; None: for all that was launched on the device before."""
        if after is None:
            self._stream.wait_stream(torch.cuda.default_stream(self._stream.device))
        else:
            self._stream.wait_event(after)

    def buffer(self, turn: int) -> Buffer:
        """Once the device is done with what it held."""
        self._done[turn].synchronize()
        return self._buffers[turn]

    def send(self, turn: int, launch: Launch) -> None:
        """Has the device fetch a buffer, without waiting for it."""
        with torch.cuda.stream(self._stream):
            launch()
            self._done[turn].record()

    def drain(self) -> None:
        """Returns when the device has everything."""
        for done in self._done:
            done.synchronize()


class Lanes:
    """Several, each with a thread."""

    def __init__(self, lanes: Sequence[CudaLane]) -> None:
        self._lanes = lanes
        self._threads = ThreadPoolExecutor(len(lanes), "lane")

    def mark(self) -> torch.cuda.Event:
        return self._lanes[0].mark()

    def run(self, launch: Launch, after: torch.cuda.Event | None) -> torch.cuda.Event:
        """Ahead of what is carried after its mark."""
        self._lanes[0].start(after)
        return self._lanes[0].run(launch)

    def carry(self, pieces: Iterable[T], fill: Fill[T], after: torch.cuda.Event | None = None) -> None:
        """Returns when the device has them. `after`: as of `start`."""
        shared = iter(list(pieces))  # threads may share that of a list; faster lanes carry more
        done = [self._threads.submit(_carry, lane, shared, fill, after) for lane in self._lanes]
        wait(done)
        for each in done:
            each.result()

    def close(self) -> None:
        self._threads.shutdown()


class Transfer:
    def __init__(self, make_lanes: Callable[[], Lanes] | None) -> None:
        """Lanes are made on first use. None: torch copies one tensor after the other."""
        self._make_lanes = make_lanes
        self._lanes: Lanes | None = None

    def copy(self, source: Tensor, target: Tensor) -> None:
        """`target` is contiguous."""
        if self._make_lanes is None or source.device == target.device or source.nbytes <= PIECE:
            target.copy_(source)
            return
        self._lanes = self._lanes or self._make_lanes()
        stored, flat = source.contiguous().flatten(), target.view(-1)
        count = PIECE // stored.itemsize
        self._lanes.carry(range(0, len(stored), count), partial(_fill, stored, flat, count))

    def copy_changed(self, source: Tensor, target: Tensor, change: Callable[[Tensor], Tensor]) -> None:
        """The same of what `change` makes of the source, on the target's device."""
        moved = torch.empty(source.shape, dtype=source.dtype, device=target.device)
        self.copy(source, moved)
        target.copy_(change(moved))

    def close(self) -> None:
        if self._lanes is not None:
            self._lanes.close()


def transfer_to(device: torch.device, num_threads: int) -> Transfer:
    return Transfer(partial(lanes_to, device, num_threads) if device.type == "cuda" else None)


def lanes_to(device: torch.device, num_threads: int, fetches: bool = False) -> Lanes:
    return Lanes([CudaLane(device, fetches) for _ in range(min(num_threads, _MAX_LANES))])


def put(source: Tensor, buffer: Tensor) -> Tensor:
    """Into the first bytes of a buffer, which are returned in its type: by one thread, and without the interpreter's
    lock."""
    part = buffer[: source.nbytes]
    np.copyto(part.numpy(), source.reshape(-1).view(torch.uint8).numpy())
    return part.view(source.dtype)


def _carry(lane: CudaLane, pieces: Iterator[T], fill: Fill[T], after: torch.cuda.Event | None) -> None:
    lane.start(after)
    for i, piece in enumerate(pieces):
        turn = i % NUM_BUFFERS
        lane.send(turn, fill(piece, lane.buffer(turn)))
    lane.drain()


def _fill(stored: Tensor, target: Tensor, count: int, low: int, buffer: Buffer) -> Launch:
    """So many numbers from `low` on. The device rounds them."""
    part, own = put(stored[low : low + count], buffer.pinned), target[low : low + count]
    if part.dtype is own.dtype:
        return partial(own.copy_, part, non_blocking=True)
    return lambda: own.copy_(part.to(own.device, non_blocking=True))
