"""Lanes to a device that is host memory."""

import threading
from typing import Any

import torch

from chairlift.runner.weights.transfer import NUM_BUFFERS, PIECE, Buffer, CudaLane, Launch


class Mark:
    """Of something that was launched by itself, and is done when another thing waits for it, no sooner."""

    def __init__(self, launch: Launch) -> None:
        self._launches = [launch]
        self._lock = threading.Lock()

    def reach(self) -> None:
        with self._lock:
            while self._launches:
                self._launches.pop()()


class LateLane(CudaLane):
    """Fetches a buffer only when it is needed again or at the end."""

    def __init__(self) -> None:
        self.num_pieces = 0
        self._buffers = [
            Buffer(torch.empty(PIECE, dtype=torch.uint8), torch.empty(PIECE, dtype=torch.uint8))
            for _ in range(NUM_BUFFERS)
        ]
        self._in_flight: dict[int, Launch] = {}

    def mark(self) -> Any:
        return None

    def run(self, launch: Launch) -> Any:
        return Mark(launch)

    def start(self, after: Any = None) -> None:
        assert not self._in_flight
        if isinstance(after, Mark):
            after.reach()

    def buffer(self, turn: int) -> Buffer:
        self._fetch(turn)
        return self._buffers[turn]

    def send(self, turn: int, launch: Launch) -> None:
        assert turn not in self._in_flight
        self._in_flight[turn] = launch
        self.num_pieces += 1

    def drain(self) -> None:
        for turn in list(self._in_flight):
            self._fetch(turn)

    def _fetch(self, turn: int) -> None:
        if turn in self._in_flight:
            self._in_flight.pop(turn)()
