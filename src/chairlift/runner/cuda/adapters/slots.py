"""The adapters on a GPU: their slots, the tiles of a step's rows, and the launches that add to its products.

Always: adapters are copied to their slots beside the steps (`loading.py`), and a step whose rows use one waits until it
is there. Tiles of rows lie at the same place for every step, as captured steps read them there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
from torch import Tensor

from chairlift.config.adapters.adapter import AdapterSpec
from chairlift.config.model import ModelConfig
from chairlift.core.plan import AdapterSlot
from chairlift.runner.adapters.low_rank import MatrixKey, read_matrices
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.adapters.kernels import adapter_kernel
from chairlift.runner.cuda.adapters.layout import (
    RANKS,
    RECORD,
    ROWS,
    MatrixPlace,
    SlotLayout,
    Words,
    max_tiles,
    num_blocks,
    slot_layout,
    tiles_of,
)
from chairlift.runner.cuda.adapters.loading import SlotLoading
from chairlift.runner.cuda.adapters.one_row_kernel import ABSENT, LINES, PIECE, adapted_row_kernel
from chairlift.runner.cuda.dependent_launch import dependent
from chairlift.runner.cuda.one_row.product import stretch
from chairlift.runner.cuda.step.memory import pinned_ring
from chairlift.runner.weights.transfer import CudaLane

_STRETCH = 512  # columns of a program
_OUTPUTS = 128  # of a program
_FEW = 64  # rows of a step whose kernels are launched before those ahead have finished


@dataclass(frozen=True, slots=True)
class FlatAdapter:
    """An adapter as it lies in a slot, in the host's memory."""

    numbers: Tensor
    num_blocks: int  # of ranks

    @property
    def num_bytes(self) -> int:
        return self.numbers.nbytes


def make_flat_adapter(spec: AdapterSpec, config: ModelConfig, dtype: torch.dtype) -> FlatAdapter:
    layout = slot_layout(config)
    blocks = num_blocks(max(part.rank for part in spec.parts))
    rank = blocks * RANKS
    numbers = torch.zeros(layout.num_units * rank, dtype=dtype)
    for key, parts in read_matrices(spec, dtype).items():
        place = layout.matrices[key]
        firsts = np.cumsum((0, *place.heights)).tolist()
        downs = numbers[place.down * rank :][: place.width * len(place.heights) * rank].view(-1, rank, place.width)
        ups = numbers[place.up * rank :][: firsts[-1] * rank].view(-1, rank)
        for part in parts:
            downs[firsts.index(part.first), : len(part.down)] = part.down
            ups[part.first : part.first + len(part.up), : len(part.down)] = part.up
    return FlatAdapter(numbers, blocks)


class CudaSlots:
    def __init__(
        self, store: AdapterStore[FlatAdapter], config: ModelConfig, dtype: torch.dtype, device: torch.device,
        num_slots: int, max_rows: int,
    ) -> None:  # fmt: skip
        """max_rows: of a step."""
        self._store = store
        self._layout: SlotLayout = slot_layout(config)
        self._max_blocks = num_blocks(store.max_rank)
        self._num_slots = num_slots
        size = self._layout.num_units * self._max_blocks * RANKS
        self._bank = torch.zeros(num_slots, size, dtype=dtype, device=device)
        self._blocks = [0] * num_slots  # of ranks
        self._loading = SlotLoading(self._bank, (lambda: CudaLane(device)) if device.type == "cuda" else None)
        most = max_tiles(max_rows, num_slots)
        places = self._layout.matrices.values()
        width = max(len(place.heights) * _splits(place) for place in places) * self._max_blocks * ROWS * RANKS
        self._partials = torch.empty(most * width, dtype=torch.float32, device=device)
        self._counters = torch.zeros(most, dtype=torch.int32, device=device)
        self._more = torch.full(
            (max(sum(place.heights) for place in places),), ABSENT.value, dtype=torch.int32, device=device
        )
        # Of all rows, and of those whose logits are wanted.
        self._tiles = [torch.full((most, RECORD), -1, dtype=torch.int32, device=device) for _ in range(2)]
        self._pinned = [pinned_ring(most * RECORD, torch.int32, device) for _ in range(2)]

    def load(self, loads: Sequence[AdapterSlot]) -> None:
        """Without waiting; `send` does so for the slots of its rows."""
        for adapter, slot in loads:
            found = self._store.get(adapter)
            self._loading.begin(slot, found.numbers)
            self._blocks[slot] = found.num_blocks

    def send(self, slots: Words, num_rows: int, logit_rows: Words | None, num_samples: int) -> None:
        """The slots of a step's rows, and its rows whose logits are wanted; None: all go on. The numbers: with
        padding."""
        self._loading.arrive(np.unique(slots[slots >= 0]).tolist())
        chosen = (slots, num_rows) if logit_rows is None else (slots[logit_rows], num_samples)
        for which, (rows, count) in enumerate(((slots, num_rows), chosen)):
            tiles, size = tiles_of(rows, self._blocks), max_tiles(count, self._num_slots)
            pinned = next(self._pinned[which])[: size * RECORD].view(size, RECORD)
            pinned.numpy()[: len(tiles)] = tiles
            pinned.numpy()[len(tiles) :] = -1
            self._tiles[which][:size].copy_(pinned, non_blocking=True)

    def multiply_row(
        self, key: MatrixKey, is_chosen: bool, x: Tensor, matrix: Tensor, bias: Tensor | None, activation: str = ""
    ) -> Tensor:
        """x [1, in], matrix [out, in] -> [1, out] with what the row's adapter adds. An activation: as `gated`."""
        place, num_outputs = self._layout.matrices[key], len(matrix) // (2 if activation else 1)
        out = torch.empty(1, num_outputs, dtype=x.dtype, device=x.device)
        first, second, third = (*place.heights, 0, 0)[:3]
        num_low = len(place.heights) * self._max_blocks * RANKS // LINES.value
        num_programs = num_low + _pieces(place, PIECE.value) + triton.cdiv(len(matrix), LINES.value)
        adapted_row_kernel[(num_programs,)](
            x, matrix, bias, self._tiles[is_chosen], self._bank, self._partials, self._more, self._counters, out,
            num_outputs, self._bank.shape[1], place.down, place.up, num_low,
            FIRST=first, SECOND=second, THIRD=third, WIDTH=place.width, STRETCH=stretch(place.width),
            ACTIVATION=activation, HAS_BIAS=bias is not None, num_warps=4, **dependent(True),
        )  # fmt: skip
        return out

    def add(self, key: MatrixKey, is_chosen: bool, x: Tensor, out: Tensor) -> None:
        """What the adapters of the rows add to a base product. is_chosen: these are the rows whose logits are
        wanted."""
        place, num_rows = self._layout.matrices[key], len(x)
        size = max_tiles(num_rows, self._num_slots)
        if not size:
            return
        first, second, third = (*place.heights, 0, 0)[:3]
        num_low = size * len(place.heights) * _splits(place)
        adapter_kernel[(num_low + size * _pieces(place, _OUTPUTS),)](
            x.contiguous(), out, self._tiles[is_chosen], self._bank, self._partials, self._counters, num_rows, num_low,
            self._bank.shape[1], place.down, place.up,
            WIDTH=place.width, FIRST=first, SECOND=second, THIRD=third, MAX_BLOCKS=self._max_blocks, STRETCH=_STRETCH,
            OUTPUTS=_OUTPUTS, num_warps=4, num_stages=1, **dependent(num_rows <= _FEW),
        )  # fmt: skip


def _splits(place: MatrixPlace) -> int:
    """Stretches of columns."""
    return triton.cdiv(place.width, _STRETCH)


def _pieces(place: MatrixPlace, each: int) -> int:
    """Of so many outputs of one part."""
    return sum(triton.cdiv(height, each) for height in place.heights)
