"""Lanes to a device that is host memory."""

import torch
from torch import Tensor

from chairlift.runner.weights.transfer import NUM_BUFFERS, PIECE, CudaLane


class LateLane(CudaLane):
    """Fetches a buffer only when it is needed again or at the end."""

    def __init__(self) -> None:
        self.num_pieces = 0
        self._buffers = [torch.empty(PIECE, dtype=torch.uint8) for _ in range(NUM_BUFFERS)]
        self._in_flight: dict[int, tuple[Tensor, Tensor]] = {}

    def start(self, after: torch.cuda.Event | None = None) -> None:
        assert not self._in_flight

    def buffer(self, turn: int) -> Tensor:
        self._fetch(turn)
        return self._buffers[turn]

    def send(self, part: Tensor, turn: int, target: Tensor) -> None:
        assert turn not in self._in_flight
        self._in_flight[turn] = (part, target)
        self.num_pieces += 1

    def drain(self) -> None:
        for turn in list(self._in_flight):
            self._fetch(turn)

    def _fetch(self, turn: int) -> None:
        if turn in self._in_flight:
            part, target = self._in_flight.pop(turn)
            target.copy_(part)
