"""Launches the matrix product of 2 to 16 rows, where the GPU is Hopper."""

import torch
import triton
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from chairlift.runner.cuda.hopper.few_rows_kernel import OUTPUTS, few_rows_kernel
from chairlift.runner.cuda.hopper.gluon import LINE, lines

MAX_ROWS = 16
_FEWEST_ROWS = 8  # that tensor cores take
_PROGRAMS = 2  # of a processor: their shared memory fits
_STRETCH = 128  # columns that are copied at once
_STAGES = {8: 6, 16: 4}  # stretches of a program that are on their way, by rows; chosen by measuring on an H200
_FEWEST_STRETCHES = 4  # of a program
_DTYPES = (torch.bfloat16, torch.float16)


class FewRows:
    def __init__(self, device: torch.device, num_processors: int) -> None:
        self._num_programs = _PROGRAMS * num_processors
        size = self._num_programs * OUTPUTS.value * MAX_ROWS
        self._partials = torch.empty(size, dtype=torch.float32, device=device)
        self._counters = torch.zeros(self._num_programs, dtype=torch.int32, device=device)  # all 0 between launches
        self._weights: dict[tuple[int, int], TensorDescriptor] = {}

    @staticmethod
    def takes(x: Tensor, matrix: Tensor) -> bool:
        return 1 < len(x) <= MAX_ROWS and x.dtype is matrix.dtype in _DTYPES and matrix.shape[1] % _STRETCH == 0

    def multiply(
        self, x: Tensor, matrix: Tensor, bias: Tensor | None, dtype: torch.dtype, activation: str = ""
    ) -> Tensor:
        """x [T, in], matrix [out, in] -> [T, out]; with an activation: matrix [2 * out, in] -> activation(first half of
        the product) * second half"""
        num_rows, width = x.shape
        num_outputs, each = len(matrix), OUTPUTS.value
        if activation:
            num_outputs, each = num_outputs // 2, each // 2
        num_tiles, num_stretches = triton.cdiv(num_outputs, each), width // _STRETCH
        splits = 1 if activation else self._splits(num_tiles, num_stretches)
        rows = _FEWEST_ROWS if num_rows <= _FEWEST_ROWS else MAX_ROWS
        out = torch.empty(num_rows, num_outputs, dtype=dtype, device=x.device)
        few_rows_kernel[(num_tiles, splits)](
            _descriptor(x.contiguous(), rows), self._weight(matrix, each), bias, out, self._partials, self._counters,
            num_rows, num_outputs, num_stretches // splits,
            ROWS=rows, STRETCH=_STRETCH, SPLITS=splits, STAGES=_STAGES[rows], ACTIVATION=activation,
            HAS_BIAS=bias is not None, num_warps=4, launch_pdl=True,
        )  # fmt: skip
        return out

    def _splits(self, num_tiles: int, num_stretches: int) -> int:
        """Parts of the columns: as many as leave no program idle."""
        splits = 1
        while (
            num_tiles * splits * 2 <= self._num_programs
            and num_stretches % (splits * 2) == 0
            and num_stretches // (splits * 2) >= _FEWEST_STRETCHES
        ):
            splits *= 2
        return splits

    def _weight(self, matrix: Tensor, num_lines: int) -> TensorDescriptor:
        key = matrix.data_ptr(), num_lines
        if key not in self._weights:
            self._weights[key] = _descriptor(matrix, num_lines)
        return self._weights[key]


def _descriptor(matrix: Tensor, num_lines: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(matrix, [num_lines, LINE.value], lines())
