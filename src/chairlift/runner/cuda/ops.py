"""`CudaOps`: the model's operations by Triton kernels and cuBLAS, for steps laid out as a `CudaBatch`."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.attention import combine_kernel, partial_kernel, single_kernel
from chairlift.runner.cuda.flash import Planned
from chairlift.runner.cuda.fp8 import Fp8Weight
from chairlift.runner.cuda.kernels import add_rms_norm_kernel, rotate_store_kernel, silu_mul_kernel
from chairlift.runner.cuda.one_row import is_one_row, one_row, one_row_normed
from chairlift.runner.cuda.prefill import prefill_kernel
from chairlift.runner.ops import Batch, Composed, Weight
from chairlift.runner.torch_ops import TorchOps

TILE = 64
QUERIES = 64  # of a prompt chunk that one program answers
_FEW = 16  # rows that do not fill the device by themselves: their contexts are split finer
# Keys at a time where every head has its own, one warp a head: many small programs keep more loads under way than few
# large ones, but few rows make only few programs.
_SINGLE_TILE, _FEW_SINGLE_TILE = 8, 32


def split_of(num_rows: int) -> int:
    """How many keys one program of a decode walks in a step of so many rows."""
    return 64 if num_rows <= _FEW else 128


@dataclass(frozen=True, slots=True)
class CudaBatch(Batch):
    """A step whose tables stay on the device: each token names the row of its request. Padding has position -1."""

    table_rows: Tensor  # int32 [T]
    num_splits: int  # that the longest context of the short rows needs, by `split_of`
    tiles: Tensor | None  # int32 [N, 4]: query tiles of long prompt chunks
    short_positions: Tensor  # int32 [T]: positions again, -1 for rows that others answer: the tiles, or who has planned
    planned: Planned | None = None  # rows that FlashInfer answers


class CudaWeight:
    scales: Tensor | None = None

    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        self.matrix = matrix.contiguous()
        self.bias = bias

    def linear(self, x: Tensor) -> Tensor:
        if is_one_row(x):
            return one_row(x, self.matrix, self.bias, x.dtype)
        return torch.nn.functional.linear(x, self.matrix, self.bias)

    def logits(self, x: Tensor) -> Tensor:
        # Not rounded to 16 bits: close logits would become equal and the wrong one win.
        if is_one_row(x):
            return one_row(x, self.matrix, self.bias, torch.float32)
        if not x.is_cuda or x.dtype is torch.float32:
            return self.linear(x).float()
        out = torch.mm(x, self.matrix.t(), out_dtype=torch.float32)
        return out if self.bias is None else out + self.bias

    def rows(self, ids: Tensor) -> Tensor:
        return torch.nn.functional.embedding(ids, self.matrix)


class CudaOps(Composed):
    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        return CudaWeight(matrix, bias)

    def rms_norm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), gain, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, gain: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        width = x.shape[-1]
        out = torch.empty_like(x)
        block = triton.next_power_of_2(width)
        warps = max(1, min(16, block // 256))
        add_rms_norm_kernel[(len(x),)](
            x, residual, gain, out, width, eps, BLOCK=block, num_warps=warps
        )  # fmt: skip
        return out, residual

    def project(self, x: Tensor, residual: Tensor, gain: Tensor, eps: float, weight: Weight) -> tuple[Tensor, Tensor]:
        if is_one_row(x) and isinstance(weight, CudaWeight | Fp8Weight):
            return one_row_normed(x, residual, gain, eps, weight.matrix, weight.scales, weight.bias, is_gated=False)
        return super().project(x, residual, gain, eps, weight)

    def project_gated(
        self, x: Tensor, residual: Tensor, gain: Tensor, eps: float, weight: Weight
    ) -> tuple[Tensor, Tensor]:
        if is_one_row(x) and isinstance(weight, CudaWeight | Fp8Weight):
            return one_row_normed(x, residual, gain, eps, weight.matrix, weight.scales, weight.bias, is_gated=True)
        return super().project_gated(x, residual, gain, eps, weight)

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
            num_warps=8,
        )  # fmt: skip
        return out

    def attention(self, q: Tensor, keys: Tensor, values: Tensor, batch: Batch, scale: float, window: int) -> Tensor:
        assert isinstance(batch, CudaBatch)
        num_rows, heads, head_dim = q.shape
        _, kv_heads, block_size, _ = keys.shape
        out = torch.empty(num_rows, heads * head_dim, dtype=q.dtype, device=q.device)
        if batch.planned is not None:
            batch.planned.attend(q, keys, values, out)
            if batch.planned.high - batch.planned.low == num_rows:
                return out
        width = batch.tables.shape[1]
        if batch.tiles is not None:
            prefill_kernel[(heads, len(batch.tiles))](
                q, keys, values, batch.tables, batch.tiles, out, scale, window, width,
                HEADS=heads, KV_HEADS=kv_heads, DIM=head_dim, SIZE=block_size, QUERIES=QUERIES, TILE=TILE, num_warps=4,
                num_stages=3,
            )  # fmt: skip
        if len(batch.short_positions):
            self._attend_by_row(q, keys, values, batch, scale, window, out)
        return out

    @staticmethod
    def _attend_by_row(
        q: Tensor, keys: Tensor, values: Tensor, batch: CudaBatch, scale: float, window: int, out: Tensor
    ) -> None:
        _, heads, head_dim = q.shape
        _, kv_heads, block_size, _ = keys.shape
        positions, width = batch.short_positions, batch.tables.shape[1]
        num_rows, members = len(positions), heads // kv_heads
        split, splits = split_of(num_rows), batch.num_splits
        partials = stats = out
        if splits > 1:
            partials = torch.empty(num_rows, heads, splits, head_dim, dtype=torch.float32, device=q.device)
            stats = torch.empty(num_rows, heads, splits, 2, dtype=torch.float32, device=q.device)
        common = (
            q, keys, values, batch.tables, batch.table_rows, positions, partials, stats, out, scale, window, width
        )  # fmt: skip
        if members == 1:
            single_kernel[(num_rows, heads, splits)](
                *common, HEADS=heads, DIM=head_dim, SIZE=block_size, SPLIT=split, NUM_SPLITS=splits,
                TILE=_FEW_SINGLE_TILE if num_rows <= _FEW else _SINGLE_TILE, num_warps=1,
            )  # fmt: skip
        else:
            partial_kernel[(num_rows, kv_heads, splits)](
                *common, HEADS=heads, KV_HEADS=kv_heads, GROUP=max(16, triton.next_power_of_2(members)), DIM=head_dim,
                SIZE=block_size, SPLIT=split, NUM_SPLITS=splits, TILE=TILE, num_warps=4, num_stages=3,
            )  # fmt: skip
        if splits > 1:
            combine_kernel[(num_rows, heads)](
                partials, stats, positions, out, window,
                HEADS=heads, DIM=head_dim, SPLIT=split, NUM_SPLITS=splits, num_warps=2,
            )  # fmt: skip

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        width = gate_up.shape[-1] // 2
        out = torch.empty(len(gate_up), width, dtype=gate_up.dtype, device=gate_up.device)
        block = 1024
        silu_mul_kernel[(len(gate_up), triton.cdiv(width, block))](gate_up, out, width, BLOCK=block, num_warps=4)
        return out

    def argmax(self, logits: Tensor) -> Tensor:
        return TorchOps().argmax(logits)
