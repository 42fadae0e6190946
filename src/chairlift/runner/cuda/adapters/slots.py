"""The adapters on a GPU: their slots, the tiles of a step's rows, and the launches that add to its products.

Always: adapters are copied to their slots beside the steps (`loading.py`), and a step whose rows use one waits until it
is there. Tiles of rows lie at the same place for every step, as captured steps read them there.
"""

from collections.abc import Sequence

import numpy as np
import torch
import triton
from torch import Tensor

from chairlift.core.plan import AdapterSlot
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import MatrixKey
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.adapters.kernels import TURNS, gated_up_kernel, low_kernel, up_kernel
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
from chairlift.runner.cuda.adapters.one_row_kernel import adapted_row_kernel, low_row_kernel
from chairlift.runner.cuda.adapters.pieces import FIELDS, SlotAdapter, unpack
from chairlift.runner.cuda.adapters.place_kernel import place_kernel
from chairlift.runner.cuda.dependent_launch import dependent
from chairlift.runner.cuda.products.one_row import LINES, stretch
from chairlift.runner.cuda.step.memory import pinned_ring
from chairlift.runner.weights.transfer import lanes_to

_LANES = 4  # to the device, of loads
_SHARES = 8  # programs for each tensor of a piece
_STRETCH = 2048  # bytes of a row, of a program: more take more shared memory than all GPUs have
_OUTPUTS = 256  # of a turn of `up`
_REGISTERS = 128  # of a thread: as many programs then share a processor
_GATED_OUTPUTS = 128
_FEW = 64  # rows of a step whose kernels are launched before those ahead have finished


class CudaSlots:
    def __init__(
        self, store: AdapterStore[SlotAdapter], config: ModelConfig, dtype: torch.dtype, device: torch.device,
        num_slots: int, max_rows: int,
    ) -> None:  # fmt: skip
        """max_rows: of a step."""
        self._store = store
        self._layout: SlotLayout = slot_layout(config)
        self._max_blocks = num_blocks(store.max_rank)
        self._num_slots = num_slots
        size = self._layout.num_units * self._max_blocks * RANKS
        self._stretch = _STRETCH // dtype.itemsize
        self._bank = torch.zeros(num_slots, size, dtype=dtype, device=device)
        self._blocks = [0] * num_slots  # of ranks
        if device.type == "cuda":
            self._loading = SlotLoading(self._bank, lanes_to(device, _LANES, fetches=True), _place)
        else:
            self._loading = SlotLoading(self._bank, None, unpack)
        # Compiled now, not at the first load: a record of no rows.
        _place(torch.zeros(FIELDS * 8, dtype=torch.uint8, device=device), 1, self._bank[0])
        most = max_tiles(max_rows, num_slots)
        places = self._layout.matrices.values()
        width = max(len(place.heights) * self._splits(place) for place in places) * self._max_blocks * ROWS * RANKS
        self._partials = torch.empty(most * width, dtype=torch.float32, device=device)
        # Of all rows, and of those whose logits are wanted.
        self._tiles = [torch.full((most, RECORD), -1, dtype=torch.int32, device=device) for _ in range(2)]
        self._pinned = [pinned_ring(most * RECORD, torch.int32, device) for _ in range(2)]

    def load(self, loads: Sequence[AdapterSlot]) -> None:
        """Without waiting; `send` does so for the slots of its rows."""
        for adapter, slot in loads:
            found = self._store.get(adapter)
            self._loading.begin(slot, found)
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
        parts, size, tiles = len(place.heights), self._bank.shape[1], self._tiles[is_chosen]
        low_row_kernel[(parts * self._max_blocks * RANKS,)](
            x, tiles, self._bank, self._partials, size, place.down,
            PARTS=parts, WIDTH=place.width, num_warps=8, **dependent(True),
        )  # fmt: skip
        out = torch.empty(1, num_outputs, dtype=x.dtype, device=x.device)
        first, second, third = (*place.heights, 0, 0)[:3]
        adapted_row_kernel[(triton.cdiv(len(matrix), LINES),)](
            x, matrix, bias, tiles, self._bank, self._partials, out, num_outputs, size, place.up,
            FIRST=first, SECOND=second, THIRD=third, WIDTH=place.width, STRETCH=stretch(place.width), LINES=LINES,
            ACTIVATION=activation, HAS_BIAS=bias is not None, num_warps=4, **dependent(True),
        )  # fmt: skip
        return out

    def add(self, key: MatrixKey, is_chosen: bool, x: Tensor, out: Tensor) -> None:
        """What the adapters of the rows add to a base product. is_chosen: these are the rows whose logits are
        wanted."""
        self.multiply_low(key, is_chosen, x)
        self.add_up(key, is_chosen, out)

    def multiply_low(self, key: MatrixKey, is_chosen: bool, x: Tensor) -> None:
        """The rows times A. Best before the base product; what follows is `add_up` of the same matrix."""
        place, num_rows = self._layout.matrices[key], len(x)
        if size := max_tiles(num_rows, self._num_slots):
            parts = len(place.heights)
            low_kernel[(size * parts * self._splits(place),)](
                x.contiguous(), self._tiles[is_chosen], self._bank, self._partials, num_rows, self._bank.shape[1],
                place.down,
                WIDTH=place.width, PARTS=parts, MAX_BLOCKS=self._max_blocks, STRETCH=self._stretch,
                num_warps=4, num_stages=1, **dependent(num_rows <= _FEW),
            )  # fmt: skip

    def add_up(self, key: MatrixKey, is_chosen: bool, out: Tensor) -> None:
        place, num_rows = self._layout.matrices[key], len(out)
        if size := max_tiles(num_rows, self._num_slots):
            first, second, third = (*place.heights, 0, 0)[:3]
            strips = sum(triton.cdiv(height, _OUTPUTS * TURNS.value) for height in place.heights)
            up_kernel[(size * strips,)](
                out, self._tiles[is_chosen], self._bank, self._partials, num_rows, self._bank.shape[1], place.up,
                FIRST=first, SECOND=second, THIRD=third, SPLITS=self._splits(place), MAX_BLOCKS=self._max_blocks,
                OUTPUTS=_OUTPUTS, num_warps=4, num_stages=1, maxnreg=_REGISTERS, **dependent(num_rows <= _FEW),
            )  # fmt: skip

    def activate_up(self, key: MatrixKey, is_chosen: bool, product: Tensor, activation: str) -> Tensor:
        """As `add_up`, then activation(first half) * second half. Rows of padding: undefined."""
        place, num_rows = self._layout.matrices[key], len(product)
        width = product.shape[1] // 2
        out = product.new_empty(num_rows, width)
        if size := max_tiles(num_rows, self._num_slots):
            gated_up_kernel[(size * triton.cdiv(width, _GATED_OUTPUTS * TURNS.value),)](
                product, out, self._tiles[is_chosen], self._bank, self._partials, num_rows, self._bank.shape[1],
                place.up,
                WIDTH=width, PARTS=len(place.heights), SPLITS=self._splits(place), MAX_BLOCKS=self._max_blocks,
                OUTPUTS=_GATED_OUTPUTS,
                ACTIVATION=activation, num_warps=4, num_stages=1, **dependent(num_rows <= _FEW),
            )  # fmt: skip
        return out

    def _splits(self, place: MatrixPlace) -> int:
        """Stretches of columns."""
        return triton.cdiv(place.width, self._stretch)


def _place(piece: Tensor, num_records: int, slot: Tensor) -> None:
    place_kernel[(num_records, _SHARES)](piece, slot, num_warps=4)
