"""Launches the products of experts in MXFP4 with few rows each, where the GPU is Hopper."""

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from chairlift.runner.cuda.experts.hopper_kernel import BYTES, mxfp4_kernel

if TYPE_CHECKING:
    from chairlift.runner.cuda.experts.experts import Order
    from chairlift.runner.cuda.experts.matrices import CudaExperts

# Of a program: lines of the weight, by the rows of a tile, warps and stages. Chosen by measuring on an H200.
_LINES = {8: 64, 16: 128}
_WARPS, _STAGES = 4, 2
_COPIED = 16  # bytes that the copy engine takes at least


class HopperExperts:
    def __init__(self) -> None:
        self._weights: dict[tuple[int, int], TensorDescriptor] = {}

    @staticmethod
    def takes(x: Tensor, weight: "CudaExperts") -> bool:
        return weight.scales is not None and x.dtype is torch.bfloat16 and weight.matrix.shape[2] % _COPIED == 0

    def tile(self, rows: int) -> "HopperTile":
        """rows: 8 or 16."""
        return HopperTile(self, rows)

    def multiply(
        self, x: Tensor, weight: "CudaExperts", order: "Order", rows: int, pairs_of_row: int, activation: str
    ) -> Tensor:  # fmt: skip
        """As `grouped` of the plain kernels."""
        num_outputs, each = weight.num_outputs, _LINES[rows]
        if activation:
            num_outputs, each = num_outputs // 2, each // 2
        out = torch.empty(len(order.pairs), num_outputs, dtype=x.dtype, device=x.device)
        mxfp4_kernel[(len(order.tiles) * triton.cdiv(num_outputs, each),)](
            x, self._weight(weight.matrix, each), weight.scales, weight.bias, order.pairs, order.tiles,
            order.num_tiles, out, num_outputs, x.shape[1],
            PAIRS=pairs_of_row, LINES=_LINES[rows], ROWS=rows, STAGES=_STAGES, ACTIVATION=activation,
            HAS_BIAS=weight.bias is not None, WARPS=_WARPS, num_warps=_WARPS,
        )  # fmt: skip
        return out

    def _weight(self, matrix: Tensor, num_lines: int) -> TensorDescriptor:
        key = matrix.data_ptr(), num_lines
        if key not in self._weights:
            layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8, rank=2)
            flat = matrix.view(-1, matrix.shape[2])
            self._weights[key] = TensorDescriptor.from_tensor(flat, [num_lines, BYTES.value], layout)
        return self._weights[key]


class HopperTile(NamedTuple):
    experts: HopperExperts
    rows: int

    def multiply(
        self, x: Tensor, weight: "CudaExperts", order: "Order", pairs_of_row: int, activation: str = ""
    ) -> Tensor:  # fmt: skip
        return self.experts.multiply(x, weight, order, self.rows, pairs_of_row, activation)
