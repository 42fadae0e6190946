"""What a step reads on the device: its own columns (columns.py), and block tables and last sampled tokens, which stay.

Always: the columns are those of the step that is being launched and travel as one piece. Padding has position -1 and
slot -1 and touches nothing but the last row of the sampled tokens, which no request has.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from chairlift.runner.cuda.step.columns import FILLERS, NUM_COLUMNS
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.machine.to_device import on_host, to_device

_NUM_PIECES = 4  # more than steps in flight


class StepMemory:
    def __init__(self, num_rows: int, table_width: int, max_tokens: int, device: torch.device) -> None:
        self._device = device
        self.tables = torch.zeros(num_rows, table_width, dtype=torch.int32, device=device)
        self.last = torch.zeros(num_rows, dtype=torch.int64, device=device)
        size = NUM_COLUMNS * _aligned(max_tokens)
        self._space = torch.zeros(size, dtype=torch.int32, device=device)
        self._pinned = pinned_ring(size, torch.int32, device)
        self.columns = _columns(self._space, max_tokens)  # [NUM_COLUMNS, at least as many as the step has]

    def send(self, step: StepInput, num_padded: int | None) -> None:
        """num_padded: tokens with padding, in a step that has any."""
        count = num_padded or max(step.num_tokens, step.num_samples)
        pinned = _columns(next(self._pinned), count)
        view = pinned.numpy()
        for place, (values, filler) in enumerate(zip(step.columns, FILLERS, strict=True)):
            view[place, : len(values)] = values
            view[place, len(values) :] = filler
        self.columns = _columns(self._space, count).copy_(pinned, non_blocking=True)
        if len(step.updates):
            moves = to_device(step.updates.astype(np.int64), self._device)
            self.tables[moves[:, 0], moves[:, 1]] = moves[:, 2].int()

    @contextmanager
    def padding(self, num_tokens: int) -> Iterator[None]:
        """A step of padding alone, in the place of the one that is being launched."""
        before = self.columns
        self.columns = _columns(self._space, num_tokens)
        kept = self.columns.clone()
        for place, filler in enumerate(FILLERS):
            self.columns[place].fill_(filler)
        try:
            yield
        finally:
            self.columns.copy_(kept)
            self.columns = before


def _columns(memory: Tensor, count: int) -> Tensor:
    """With at least so many rows."""
    count = _aligned(count)
    return memory[: NUM_COLUMNS * count].view(NUM_COLUMNS, count)


def _aligned(count: int) -> int:
    """So that every column begins at a multiple of 16 bytes: Triton compiles a kernel again for one that does not."""
    return -(-count // 4) * 4


def pinned_ring(size: int, dtype: torch.dtype, device: torch.device) -> Iterator[Tensor]:
    """Pinned pieces [size] in turn: none is written over before it has travelled, where each step takes one at the most
    and failed ones are waited for."""
    return cycle([on_host((size,), dtype, device) for _ in range(_NUM_PIECES)])
