"""Launches the matrix product of up to 64 rows, where the GPU is Hopper."""

import torch
import triton
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from chairlift.runner.cuda.gluon import LINE, lines
from chairlift.runner.cuda.products.hopper_kernel import OUTPUTS, few_rows_kernel

MAX_ROWS = 64
_PART = 128  # columns: the fewest that are copied at once
# Parts of a program that are on their way, by the rows that tensor cores take: where two programs share a processor's
# memory, and where each has it for itself. Chosen by measuring on an H200.
_SHARED = {8: 6, 16: 4, 32: 4, 64: 3}
_ALONE = {8: 12, 16: 10, 32: 8, 64: 7}
_FEWEST_PARTS = 4  # of a program
_DTYPES = (torch.bfloat16, torch.float16)


class FewRows:
    def __init__(self, device: torch.device, num_processors: int) -> None:
        self._num_processors = num_processors
        size = num_processors * OUTPUTS.value * MAX_ROWS
        self._partials = torch.empty(size, dtype=torch.float32, device=device)
        self._counters = torch.zeros(num_processors, dtype=torch.int32, device=device)  # all 0 between launches
        self._weights: dict[tuple[int, torch.Size, int], TensorDescriptor] = {}

    @staticmethod
    def takes(x: Tensor, matrix: Tensor) -> bool:
        return 0 < len(x) <= MAX_ROWS and x.dtype is matrix.dtype in _DTYPES and matrix.shape[1] % _PART == 0

    def multiply(
        self, x: Tensor, matrix: Tensor, bias: Tensor | None, dtype: torch.dtype, activation: str = "",
        is_cut: bool = True,
    ) -> Tensor:  # fmt: skip
        """x [T, in], matrix [out, in] -> [T, out]; with an activation: matrix [2 * out, in] -> activation(first half of
        the product) * second half. is_cut: sums may be cut into parts."""
        num_rows, width = x.shape
        num_outputs, each = len(matrix), OUTPUTS.value
        if activation:
            num_outputs, each = num_outputs // 2, each // 2
        num_tiles, splits = triton.cdiv(num_outputs, each), 1
        is_narrow = 2 * num_tiles <= self._num_processors and not activation
        if is_narrow and is_cut:
            splits = self._splits(num_tiles, width // _PART)
        elif is_narrow:
            each //= 2
            num_tiles = triton.cdiv(num_outputs, each)
        rows = next(rows for rows in _SHARED if num_rows <= rows)
        ahead = (_ALONE if num_tiles * splits <= self._num_processors else _SHARED)[rows]
        stretch = 2 * _PART if ahead % 2 == 0 and width // splits % (2 * _PART) == 0 else _PART
        out = torch.empty(num_rows, num_outputs, dtype=dtype, device=x.device)
        few_rows_kernel[(num_tiles, splits)](
            _descriptor(x.contiguous(), rows), self._weight(matrix, each), bias, out, self._partials, self._counters,
            num_rows, num_outputs, width // splits // stretch,
            ROWS=rows, LINES=2 * each if activation else each, STRETCH=stretch, SPLITS=splits,
            STAGES=ahead * _PART // stretch, ACTIVATION=activation, HAS_BIAS=bias is not None,
            num_warps=4, launch_pdl=True,
        )  # fmt: skip
        return out

    def _splits(self, num_tiles: int, num_parts: int) -> int:
        """Parts of the columns: as many as leave no processor idle."""
        splits = 1
        while (
            num_tiles * splits * 2 <= self._num_processors
            and num_parts % (splits * 2) == 0
            and num_parts // (splits * 2) >= _FEWEST_PARTS
        ):
            splits *= 2
        return splits

    def _weight(self, matrix: Tensor, num_lines: int) -> TensorDescriptor:
        key = matrix.data_ptr(), matrix.shape, num_lines
        if key not in self._weights:
            self._weights[key] = _descriptor(matrix, num_lines)
        return self._weights[key]


def _descriptor(matrix: Tensor, num_lines: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(matrix, [num_lines, LINE.value], lines())
