"""A weight of 4 bits: few rows are multiplied by its codes, many by what it widens to in memory that all layers share.

Always: where rows must not depend on each other, all are multiplied by what it widens to.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from chairlift.runner.cuda.hopper import Hopper
from chairlift.runner.cuda.products.int4 import TILE, Int4
from chairlift.runner.cuda.products.packed import MOST_WIDENED, Scratch
from chairlift.runner.ops import MakeWeight, Weight


@dataclass(frozen=True, slots=True)
class Int4Weight:
    matrix: Int4
    bias: Tensor | None
    dtype: torch.dtype
    scratch: Scratch
    make: MakeWeight  # a weight of a matrix that is in the scratch, for one product
    hopper: Hopper
    exact: bool  # rows must not depend on each other

    def __post_init__(self) -> None:
        rows = min(self._most * TILE, self.matrix.num_rows)
        self.scratch.reserve(rows * self.matrix.columns, self.dtype, self.matrix.codes.device)

    @property
    def _most(self) -> int:
        """Tiles of lines at once."""
        return max(1, MOST_WIDENED // self.matrix.columns // TILE)

    def linear(self, x: Tensor) -> Tensor:
        return self._few(x, x.dtype) if self._takes(x) else self._by_numbers(lambda weight: weight.linear(x))

    def logits(self, x: Tensor) -> Tensor:
        return self._few(x, torch.float32) if self._takes(x) else self._by_numbers(lambda weight: weight.logits(x))

    def gated(self, x: Tensor, activation: str) -> Tensor | None:
        is_fused = self.matrix.is_paired and self.bias is None
        return self._few(x, x.dtype, activation) if is_fused and self._takes(x) else None

    def rows(self, ids: Tensor) -> Tensor:
        return self.matrix.rows(ids, self.dtype)

    def _few(self, x: Tensor, dtype: torch.dtype, activation: str = "") -> Tensor:
        few = self.hopper.int4
        assert few is not None
        return few.multiply(x, self.matrix, self.bias, dtype, activation)

    def _takes(self, x: Tensor) -> bool:
        few = self.hopper.int4
        return few is not None and not self.exact and few.takes(x, self.matrix)

    def _by_numbers(self, multiply: Callable[[Weight], Tensor]) -> Tensor:
        matrix, most = self.matrix, self._most
        if matrix.num_tiles <= most:
            (wide,) = self.scratch.matrices([(matrix.num_rows, matrix.columns)], self.dtype)
            matrix.widen(wide)
            self.scratch.settle()
            return multiply(self.make(wide, self.bias))
        pieces = []
        for first in range(0, matrix.num_tiles, most):
            count = min(most, matrix.num_tiles - first)
            (wide,) = self.scratch.matrices([(count * TILE, matrix.columns)], self.dtype)
            matrix.widen(wide, first, count)
            self.scratch.settle()
            pieces.append(multiply(self.make(wide, None)))
        out = matrix.in_order(torch.cat(pieces, dim=1))
        return out if self.bias is None else out.add_(self.bias)
