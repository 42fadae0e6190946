"""Attention of a single row in one kernel: half of what is not reading weights is waiting between kernels and for
memory."""

import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.dependent_launch import dependent
from chairlift.runner.cuda.one_row.attention_kernel import attend_kernel
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.ops import Attention

_TILE = 16  # keys that a program reads at a time
_MAX_SPLITS = 32  # that are joined at once
_WARPS = 1
_SHORT = 512  # contexts up to this one are cut alike: each cut is a kernel to compile


def attend_one_row(
    qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: CudaBatch, counters: Tensor
) -> Tensor:
    """What rotation, the cache write and attention do with qkv [1, 3 * heads * head_dim]: each head has keys of its
    own."""
    _, heads, block_size, head_dim = keys.shape
    spec = attention.spec
    context = max(_SHORT, batch.tiling.split * batch.tiling.num_splits)
    split = max(_TILE, triton.next_power_of_2(triton.cdiv(context, _MAX_SPLITS)))
    splits = triton.next_power_of_2(triton.cdiv(context, split))
    out = torch.empty(1, heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    partials = torch.empty(heads, splits, head_dim, dtype=torch.float32, device=qkv.device)
    stats = torch.empty(heads, splits, 2, dtype=torch.float32, device=qkv.device)
    attend_kernel[(heads, splits)](
        qkv, attention.rotation, batch.positions, batch.slots, batch.table_rows, batch.tables, keys, values,
        attention.q_norm, attention.k_norm, partials, stats, counters, out, spec.scale, spec.cap, spec.window,
        batch.tables.shape[1], attention.eps,
        HEADS=heads, DIM=head_dim, SIZE=block_size, SPLIT=split, NUM_SPLITS=splits, TILE=_TILE,
        HAS_NORM=spec.has_qk_norm, HAS_CAP=spec.cap > 0, num_warps=_WARPS, **dependent(True),
    )  # fmt: skip
    return out
