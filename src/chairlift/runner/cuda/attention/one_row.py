"""Launches the attention of a single row: one kernel, as half of the time beside reading weights is waiting."""

import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.attention.one_row_kernel import attend_kernel
from chairlift.runner.cuda.dependent_launch import dependent
from chairlift.runner.cuda.step.batch import CudaBatch, parts
from chairlift.runner.ops import Attention

_TILE = 16  # keys that a program reads at a time
_MAX_SPLITS = 32  # that are joined at once
_WARPS = 1
_SHORT = 512  # contexts up to this one are split alike: each split is a kernel to compile


def attend_one_row(
    qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: CudaBatch, counters: Tensor
) -> Tensor:
    """Rotation, the cache write and attention of qkv [1, 3 * heads * head_dim]: each head has its own keys."""
    _, heads, block_size, head_dim = keys.shape
    spec = attention.spec
    context = max(_SHORT, batch.tiling.split * batch.tiling.num_splits)
    split = max(_TILE, triton.next_power_of_2(triton.cdiv(context, _MAX_SPLITS)))
    splits = triton.next_power_of_2(triton.cdiv(context, split))
    out = torch.empty(1, heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    partials, stats = parts(1, heads, splits, keys)
    attend_kernel[(heads, splits)](
        qkv, attention.rotation, batch.positions, batch.slots, batch.table_rows, batch.tables, keys, values,
        attention.q_norm, attention.k_norm, partials, stats, counters, out, spec.scale, spec.cap, spec.window,
        batch.tables.shape[1], attention.eps,
        HEADS=heads, DIM=head_dim, SIZE=block_size, SPLIT=split, NUM_SPLITS=splits, TILE=_TILE,
        HAS_NORM=spec.has_qk_norm, HAS_CAP=spec.cap > 0, num_warps=_WARPS, **dependent(True),
    )  # fmt: skip
    return out
