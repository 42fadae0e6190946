"""Lanes to a device that is host memory."""

from typing import Any

import torch
from torch import Tensor

from chairlift.runner.weights.transfer import NUM_BUFFERS, PIECE, CudaLane, Launch


class LateLane(CudaLane):
    """Fetches a buffer only when it is needed again or at the end."""

    def __init__(self) -> None:
        self.num_pieces = 0
        self._buffers = [torch.empty(PIECE, dtype=torch.uint8) for _ in range(NUM_BUFFERS)]
        self._in_flight: dict[int, Launch] = {}

    def mark(self) -> Any:
        return None

    def run(self, launch: Launch) -> Any:
        launch()
        return None

    def start(self, after: torch.cuda.Event | None = None) -> None:
        assert not self._in_flight

    def buffer(self, turn: int) -> Tensor:
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
