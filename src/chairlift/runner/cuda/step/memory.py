"""What a step reads on the device: its own columns (columns.py) and tiles of queries, and block tables and last sampled
tokens, which stay.

Steps with states have spans and units too (states.py), and what else is to be written in memory of its own.

Always: columns and tiles are those of the step that is being launched and travel as one piece; where they lie depends
on their numbers alone. Padding has position -1 and slot -1 and touches nothing but the last row of the sampled tokens,
which no request has; a tile of padding has no queries, a span no tokens, a unit no span.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from chairlift.runner.cuda.step.columns import FILLERS, NUM_COLUMNS, TILE_WIDTH
from chairlift.runner.cuda.step.graph_key import GraphKey, max_tiles
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.cuda.step.states import SPAN_WIDTH, UNIT_WIDTH, StateLayout
from chairlift.runner.machine.to_device import on_host, to_device

_NUM_PIECES = 4  # more than steps in flight


class StepMemory:
    def __init__(
        self, num_rows: int, table_width: int, max_tokens: int, device: torch.device, num_views: int = 0,
        states: StateLayout | None = None,
    ) -> None:  # fmt: skip
        """num_views: other groups of layers, with tables and slots of their own."""
        self._states = states
        num_groups = num_views + (states.num_groups if states else 0)
        self._device = device
        # Where there are several, each table begins at a multiple of 16 bytes, as columns do.
        width = _aligned(table_width) if num_groups else table_width
        self._tables = torch.zeros((1 + num_groups) * num_rows, width, dtype=torch.int32, device=device)
        self.tables, *tables = self._tables.split(num_rows)
        self.view_tables, self.state_tables = tables[:num_views], tables[num_views:]
        # A row more than any step has, as kernels look one ahead.
        self.writes = torch.zeros(
            states.max_writes + 1 if states else 1,
            1 + (states.num_pages if states else 0),
            dtype=torch.int32,
            device=device,
        )
        self.last = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._fillers = (*FILLERS, *[-1] * num_views)
        size = len(self._fillers) * _aligned(max_tokens) + TILE_WIDTH * max(max_tiles(max_tokens), max_tokens)
        size += (SPAN_WIDTH + UNIT_WIDTH) * _aligned(max_tokens) if states else 0
        self._space = torch.zeros(size, dtype=torch.int32, device=device)
        self._pinned = pinned_ring(size, torch.int32, device)
        # [columns and slots of other groups, at least as many as the step has], [tiles, TILE_WIDTH]
        self._all, self.tiles, self.spans, self.units = self._cut(self._space, max_tokens, 0, 0, 0)
        self.is_single = False  # no span has tokens of two tiles

    @property
    def columns(self) -> Tensor:
        return self._all[:NUM_COLUMNS]

    @property
    def view_slots(self) -> Tensor:
        return self._all[NUM_COLUMNS:]

    def send(self, step: StepInput, key: GraphKey | None) -> None:
        """key: with which numbers of tokens and tiles, padding included; None: its own."""
        count = key.num_tokens if key is not None else max(step.num_tokens, step.num_samples)
        num_tiles = key.num_tiles if key is not None else len(step.tiles)
        shape = count, num_tiles, *self._num_states(step, key)
        pinned = next(self._pinned)
        columns, tiles, spans, units = (part.numpy() for part in self._cut(pinned, *shape))
        slots = step.view_slots.reshape(len(self._fillers) - NUM_COLUMNS, step.num_tokens)
        for place, (values, filler) in enumerate(zip((*step.columns, *slots), self._fillers, strict=True)):
            columns[place, : len(values)] = values
            columns[place, len(values) :] = filler
        tiles[: len(step.tiles)] = step.tiles
        tiles[len(step.tiles) :] = 0
        for part, words, filler in ((spans, step.states.spans, 0), (units, step.states.units, -1)):
            part[: len(words)] = words
            part[len(words) :] = filler
        used = sum(_aligned(part.size) for part in (columns, tiles, spans, units))
        self._space[:used].copy_(pinned[:used], non_blocking=True)
        self._all, self.tiles, self.spans, self.units = self._cut(self._space, *shape)
        self.is_single = key.is_single if key is not None else step.states.is_single
        if len(step.states.writes):
            writes = to_device(step.states.writes.reshape(-1, self.writes.shape[1]), self._device)
            self.writes[: len(writes)] = writes
        if len(step.updates):
            moves = to_device(step.updates.astype(np.int64), self._device)
            self._tables[moves[:, 0], moves[:, 1]] = moves[:, 2].int()

    @contextmanager
    def padding(self, key: GraphKey) -> Iterator[None]:
        """A step of padding alone, in the place of the one that is being launched."""
        before = self._all, self.tiles, self.spans, self.units, self.is_single
        shape = key.num_tokens, key.num_tiles, *self._num_states(None, key)
        self._all, self.tiles, self.spans, self.units = self._cut(self._space, *shape)
        self.is_single = key.is_single
        parts = self._all, self.tiles, self.spans, self.units
        space = self._space[: sum(_aligned(part.numel()) for part in parts)]
        kept = space.clone()
        for place, filler in enumerate(self._fillers):
            self._all[place].fill_(filler)
        self.tiles.fill_(0)
        self.spans.fill_(0)
        self.units.fill_(-1)
        try:
            yield
        finally:
            space.copy_(kept)
            self._all, self.tiles, self.spans, self.units, self.is_single = before

    def _num_states(self, step: StepInput | None, key: GraphKey | None) -> tuple[int, int]:
        """Spans and units, padding included."""
        if self._states is None:
            return 0, 0
        if key is not None:
            return key.num_spans, key.num_units(self._states.tile)
        assert step is not None
        return len(step.states.spans), len(step.states.units)

    def _cut(
        self, memory: Tensor, count: int, num_tiles: int, num_spans: int, num_units: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(columns of at least so many rows, tiles, spans, units)"""
        count, num_columns = _aligned(count), len(self._fillers)
        parts, low = [], 0
        for num, width in (
            (num_columns, count),
            (num_tiles, TILE_WIDTH),
            (num_spans, SPAN_WIDTH),
            (num_units, UNIT_WIDTH),
        ):
            parts.append(memory[low : low + num * width].view(num, width))
            low += _aligned(num * width)
        columns, tiles, spans, units = parts
        return columns, tiles, spans, units


def _aligned(count: int) -> int:
    """So that every column begins at a multiple of 16 bytes: Triton compiles a kernel again for one that does not."""
    return -(-count // 4) * 4


def pinned_ring(size: int, dtype: torch.dtype, device: torch.device) -> Iterator[Tensor]:
    """Pinned pieces [size] in turn: none is written over before it has travelled, where each step takes one at the most
    and failed ones are waited for."""
    return cycle([on_host((size,), dtype, device) for _ in range(_NUM_PIECES)])
