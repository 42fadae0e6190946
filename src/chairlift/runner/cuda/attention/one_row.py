"""Launches the attention of a single row: one kernel, as half of the time beside reading weights is waiting."""

import torch
import triton
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.cuda.attention.grouped_row_kernel import grouped_row_kernel
from chairlift.runner.cuda.attention.one_row_kernel import attend_kernel
from chairlift.runner.cuda.attention.paged import both, group
from chairlift.runner.cuda.attention.tiling import LARGE_HEAD
from chairlift.runner.cuda.dependent_launch import dependent
from chairlift.runner.cuda.step.batch import CudaBatch, parts
from chairlift.runner.cuda.target import shared_memory
from chairlift.runner.ops import Attention

_TILE = 16  # keys that a program reads at a time
_MAX_SPLITS = 32  # that are joined at once
_WARPS = 1
_SHORT = 512  # contexts up to this one are split alike: each split is a kernel to compile
_NARROW_HEAD = 128  # up to which heads that share keys have several kernels
_GROUPED_SPLIT = 64  # keys of a program, where heads share them; more are joined faster by a kernel of their own


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


def is_plain(attention: Attention) -> bool:
    """Whether the kernels of a single row take it that know of no more than norms, rotation and heads' own keys."""
    spec = attention.spec
    return spec.has_own_rows and spec.head_dim <= LARGE_HEAD and attention.has_plain_values


def takes_grouped(spec: AttentionSpec, batch: CudaBatch, keys: Tensor) -> bool:
    """Whether one kernel does it: heads are wide, and what a row sees is short enough for one program to join."""
    return spec.head_dim > _NARROW_HEAD and _grouped_splits(spec, batch, keys)[1] <= _MAX_SPLITS


def attend_grouped_row(
    qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: CudaBatch, counters: Tensor
) -> Tensor:
    """The same where several heads share keys, of qkv as `Ops.attend` takes it."""
    _, kv_heads, block_size, head_dim = keys.shape
    spec, v_norm = attention.spec, attention.v_norm
    heads = spec.num_heads
    split, splits = _grouped_splits(spec, batch, keys)
    out = torch.empty(1, heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    partials, stats = parts(1, heads, splits, keys)
    grouped_row_kernel[(kv_heads, splits)](
        qkv, attention.rotation, batch.positions, batch.slots, batch.table_rows, batch.tables, keys, values,
        attention.q_norm, attention.k_norm, v_norm and v_norm.gain, partials, stats, counters, out, spec.scale,
        spec.cap, spec.window, batch.tables.shape[1], splits, attention.eps,
        HEADS=heads, KV_HEADS=kv_heads, GROUP=group(heads, kv_heads), DIM=head_dim, SIZE=block_size, SPLIT=split,
        HAS_OWN=spec.has_own_rows, HAS_NORM=spec.has_qk_norm, HAS_VALUE_NORM=v_norm is not None,
        HAS_VALUES=not spec.has_keys_as_values, HAS_CAP=spec.cap > 0, num_warps=8 if head_dim > LARGE_HEAD else 4,
        **dependent(True),
    )  # fmt: skip
    return out


def _grouped_splits(spec: AttentionSpec, batch: CudaBatch, keys: Tensor) -> tuple[int, int]:
    """Keys of a stretch, as many as registers and shared memory hold, and stretches that a row may see."""
    split = _GROUPED_SPLIT
    while split > _TILE and 3 * both(split, keys.shape[3], keys.element_size()) > 2 * shared_memory():
        split //= 2
    splits = triton.cdiv(batch.tiling.split * batch.tiling.num_splits, split)
    return split, min(splits, triton.cdiv(spec.window - 1, split) + 1) if spec.window else splits
