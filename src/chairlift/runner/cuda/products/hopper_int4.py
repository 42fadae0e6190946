"""Launches the matrix product of up to 64 rows by a weight of 4 bits, where the GPU is Hopper."""

import torch
import triton
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from chairlift.runner.cuda.gluon import lines
from chairlift.runner.cuda.products.hopper_int4_kernel import BYTES, TILE_LINES, int4_rows_kernel
from chairlift.runner.cuda.products.int4 import TILE, Int4

MAX_ROWS = 64
_MOST = 1024  # programs whose sums are joined
# Of a program, by the rows that tensor cores take: stretches on their way, and how many programs share a processor.
_STAGES = {8: 3, 16: 3, 32: 2, 64: 2}
_PROGRAMS = {8: 4, 16: 4, 32: 4, 64: 2}
_FEWEST = 2  # stretches of a program
_MOST_HELD = 256  # groups of a program, which fit in shared memory with the stretches


class FewRowsInt4:
    def __init__(self, device: torch.device, num_processors: int) -> None:
        self._num_processors = num_processors
        self._partials = torch.empty(_MOST * TILE * MAX_ROWS, dtype=torch.float32, device=device)
        self._counters = torch.zeros(_MOST, dtype=torch.int32, device=device)  # all 0 between launches
        self._codes: dict[tuple[int, int], TensorDescriptor] = {}

    def takes(self, x: Tensor, matrix: Int4) -> bool:
        is_number = x.dtype is torch.bfloat16 or x.dtype is matrix.scales.dtype is torch.float16
        if not is_number or not 0 < len(x) <= MAX_ROWS:
            return False
        rows = next(rows for rows in _STAGES if len(x) <= rows)
        return _held(matrix.columns // self._splits(matrix, rows), matrix.group) <= _MOST_HELD

    def multiply(
        self, x: Tensor, matrix: Int4, bias: Tensor | None, dtype: torch.dtype, activation: str = "",
        is_cut: bool = True,
    ) -> Tensor:  # fmt: skip
        """x [T, in] -> [T, out]; with an activation of a paired matrix: activation(first half of the product) * second
        half. is_cut: sums may be cut into parts."""
        rows = next(rows for rows in _STAGES if len(x) <= rows)
        splits = self._splits(matrix, rows) if is_cut else 1
        return self.launch(x, matrix, bias, dtype, activation, splits, _STAGES[rows], _tiles(matrix))

    def launch(
        self, x: Tensor, matrix: Int4, bias: Tensor | None, dtype: torch.dtype, activation: str, splits: int,
        stages: int, tiles: int,
    ) -> Tensor:  # fmt: skip
        num_rows = len(x)
        num_outputs = matrix.num_rows // (2 if activation else 1)
        rows = next(rows for rows in _STAGES if num_rows <= rows)
        out = torch.empty(num_rows, num_outputs, dtype=dtype, device=x.device)
        num_across = matrix.columns // TILE
        num_stretches = num_across // tiles // splits
        int4_rows_kernel[(matrix.num_tiles, splits)](
            TensorDescriptor.from_tensor(x.contiguous(), [rows, tiles * TILE], lines()), self._of(matrix, tiles),
            matrix.scales, matrix.zeros, bias, out, self._partials, self._counters, num_rows, num_outputs, num_across,
            matrix.scales.shape[1], num_stretches, matrix.zero,
            ROWS=rows, TILES=tiles, GROUP=matrix.group, HELD=_held(num_stretches * tiles * TILE, matrix.group),
            SPLITS=splits, STAGES=stages, ACTIVATION=activation, IS_PAIRED=matrix.is_paired,
            IS_PRECISE=matrix.scales.dtype is torch.float16 is not x.dtype, HAS_ZEROS=matrix.zeros is not None,
            HAS_BIAS=bias is not None, num_warps=4, launch_pdl=True,
        )  # fmt: skip
        return out

    def _splits(self, matrix: Int4, rows: int) -> int:
        """Parts of the columns: as many as there is room for on the processors."""
        num_stretches = matrix.columns // TILE // _tiles(matrix)
        most = min(_MOST, self._num_processors * _PROGRAMS[rows]) // matrix.num_tiles
        fitting = (n for n in range(1, most + 1) if num_stretches % n == 0 and num_stretches // n >= _FEWEST)
        return max(fitting, default=1)

    def _of(self, matrix: Int4, tiles: int) -> TensorDescriptor:
        key = matrix.codes.data_ptr(), tiles
        if key not in self._codes:
            layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8, rank=2)
            shape = [tiles * TILE_LINES.value, BYTES.value]
            self._codes[key] = TensorDescriptor.from_tensor(matrix.codes, shape, layout)
        return self._codes[key]


def _tiles(matrix: Int4) -> int:
    """That a program takes at once."""
    return 4 if matrix.columns % (4 * TILE) == 0 else 2


def _held(columns: int, group: int) -> int:
    """Room for the groups of so many columns, wherever they begin."""
    return triton.next_power_of_2(-(-columns // group) + (columns % group > 0))
