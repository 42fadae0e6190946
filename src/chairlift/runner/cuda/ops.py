"""`CudaOps`: the model's operations by Triton kernels and cuBLAS, for steps laid out as a `CudaBatch`."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.attention import combine_kernel, group, partial_kernel, single_kernel
from chairlift.runner.cuda.exact_attend import attend_prompts, attend_rows
from chairlift.runner.cuda.exact_product import ExactWeight, Found
from chairlift.runner.cuda.flash import Planned
from chairlift.runner.cuda.handover import early
from chairlift.runner.cuda.kernels import add_rms_norm_kernel, rotate_store_kernel, silu_mul_kernel, whole_row
from chairlift.runner.cuda.layout import QUERIES
from chairlift.runner.cuda.one_row import gated, is_one_row, one_row
from chairlift.runner.cuda.prefill import prefill_kernel
from chairlift.runner.cuda.tiling import Tiling
from chairlift.runner.ops import Batch, Weight
from chairlift.runner.torch_ops import TorchOps

_TILE = 64  # keys that a tile of queries looks at in one go
_STRETCH = 1024  # of a row, whose activation one program computes


@dataclass(frozen=True, slots=True)
class CudaBatch(Batch):
    """A step whose tables stay on the device: each token names the row of its request. Padding has position -1."""

    table_rows: Tensor  # int32 [T]
    tiling: Tiling  # of the short rows
    tiles: Tensor | None  # int32 [N, 4]: query tiles of long prompt chunks
    # int32 [up to T]: positions of the first rows again, -1 where others answer: the tiles, or who has planned
    short_positions: Tensor
    planned: Planned | None = None  # rows that FlashInfer answers


class CudaWeight:
    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        self._matrix = matrix.contiguous()
        self._bias = bias

    def linear(self, x: Tensor) -> Tensor:
        if is_one_row(x):
            return one_row(x, self._matrix, self._bias, x.dtype)
        return torch.nn.functional.linear(x, self._matrix, self._bias)

    def gated(self, x: Tensor) -> Tensor:
        """Of a single row: silu(first half of the product) * second half."""
        assert self._bias is None
        return gated(x, self._matrix)

    def logits(self, x: Tensor) -> Tensor:
        # Not rounded to 16 bits: close logits would become equal and the wrong one win.
        if is_one_row(x):
            return one_row(x, self._matrix, self._bias, torch.float32)
        if not x.is_cuda or x.dtype is torch.float32:
            return self.linear(x).float()
        out = torch.mm(x, self._matrix.t(), out_dtype=torch.float32)
        return out if self._bias is None else out + self._bias

    def rows(self, ids: Tensor) -> Tensor:
        return torch.nn.functional.embedding(ids, self._matrix)


class CudaOps:
    """exact: a row's bits do not depend on what shares its step."""

    def __init__(self, exact: bool = False) -> None:
        self._exact = exact
        self._found = Found()

    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        return ExactWeight(matrix, bias, self._found) if self._exact else CudaWeight(matrix, bias)

    def rms_norm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        if self._exact:
            return self.add_rms_norm(x, torch.zeros_like(x), gain, eps)[0]
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), gain, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, gain: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        width = x.shape[-1]
        out = torch.empty_like(x)
        add_rms_norm_kernel[(len(x),)](x, residual, gain, out, width, eps, **whole_row(width), **early(len(x) == 1))
        return out, residual

    def rotate_and_store(
        self, qkv: Tensor, rotation: Tensor, keys: Tensor, values: Tensor, batch: Batch,
        heads: int, q_gain: Tensor | None, k_gain: Tensor | None, eps: float,
    ) -> Tensor:  # fmt: skip
        _, kv_heads, block_size, head_dim = keys.shape
        out = torch.empty(len(qkv), heads, head_dim, dtype=qkv.dtype, device=qkv.device)
        rotate_store_kernel[(len(qkv),)](
            qkv, out, rotation, batch.positions, batch.slots, keys, values, q_gain, k_gain, eps,
            HEADS=heads, KV_HEADS=kv_heads, Q_ROWS=triton.next_power_of_2(heads),
            KV_ROWS=triton.next_power_of_2(kv_heads), DIM=head_dim, SIZE=block_size, HAS_NORM=q_gain is not None,
            num_warps=8, enable_fp_fusion=not self._exact,  # as the kernel of a single row has it
        )  # fmt: skip
        return out

    def attention(self, q: Tensor, keys: Tensor, values: Tensor, batch: Batch, scale: float, window: int) -> Tensor:
        assert isinstance(batch, CudaBatch)
        num_rows, heads, head_dim = q.shape
        _, kv_heads, block_size, _ = keys.shape
        out = torch.empty(num_rows, heads * head_dim, dtype=q.dtype, device=q.device)
        if self._exact:
            self._attend_exactly(q, keys, values, batch, scale, window, out)
            return out
        if batch.planned is not None:
            batch.planned.attend(q, keys, values, out)
            if batch.planned.high - batch.planned.low == num_rows:
                return out
        width = batch.tables.shape[1]
        if batch.tiles is not None:
            prefill_kernel[(heads, len(batch.tiles))](
                q, keys, values, batch.tables, batch.tiles, out, scale, window, width,
                HEADS=heads, KV_HEADS=kv_heads, DIM=head_dim, SIZE=block_size, QUERIES=QUERIES, TILE=_TILE, num_warps=4,
                num_stages=2,
            )  # fmt: skip
        if len(batch.short_positions):
            self._attend_by_row(q, keys, values, batch, scale, window, out)
        return out

    @staticmethod
    def _attend_exactly(
        q: Tensor, keys: Tensor, values: Tensor, batch: CudaBatch, scale: float, window: int, out: Tensor
    ) -> None:
        if batch.tiles is not None:
            attend_prompts(q, keys, values, batch.tables, batch.tiles, scale, window, out)
        attend_rows(
            q, keys, values, batch.tables, batch.table_rows, batch.short_positions, batch.tiling, scale, window, out
        )  # fmt: skip

    @staticmethod
    def _attend_by_row(
        q: Tensor, keys: Tensor, values: Tensor, batch: CudaBatch, scale: float, window: int, out: Tensor
    ) -> None:
        _, heads, head_dim = q.shape
        _, kv_heads, block_size, _ = keys.shape
        positions, width = batch.short_positions, batch.tables.shape[1]
        num_rows = len(positions)
        split, splits, tile, warps = batch.tiling
        partials = stats = out
        if splits > 1:
            partials = torch.empty(num_rows, heads, splits, head_dim, dtype=torch.float32, device=q.device)
            stats = torch.empty(num_rows, heads, splits, 2, dtype=torch.float32, device=q.device)
        common = (
            q, keys, values, batch.tables, batch.table_rows, positions, partials, stats, out, scale, window, width,
            splits,
        )  # fmt: skip
        if heads == kv_heads:
            single_kernel[(num_rows, heads, splits)](
                *common, HEADS=heads, DIM=head_dim, SIZE=block_size, SPLIT=split, IS_SPLIT=splits > 1,
                TILE=tile, num_warps=warps,
            )  # fmt: skip
        else:
            partial_kernel[(num_rows, kv_heads, splits)](
                *common, HEADS=heads, KV_HEADS=kv_heads, GROUP=group(heads, kv_heads), DIM=head_dim,
                SIZE=block_size, SPLIT=split, IS_SPLIT=splits > 1, TILE=tile, num_warps=warps, num_stages=3,
            )  # fmt: skip
        if splits > 1:
            combine_kernel[(num_rows, heads)](
                partials, stats, positions, out, window, splits, HEADS=heads, DIM=head_dim, SPLIT=split, num_warps=2
            )  # fmt: skip

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        width = gate_up.shape[-1] // 2
        out = torch.empty(len(gate_up), width, dtype=gate_up.dtype, device=gate_up.device)
        silu_mul_kernel[(len(gate_up), triton.cdiv(width, _STRETCH))](gate_up, out, width, BLOCK=_STRETCH, num_warps=4)
        return out

    def argmax(self, logits: Tensor) -> Tensor:
        return TorchOps().argmax(logits)
