"""Launches the attention kernels of `--exact`. The number of warps changes nothing but the time."""

import torch
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.cuda.attention.exact_kernels import exact_prompt_kernel, exact_rows_kernel, join_kernel
from chairlift.runner.cuda.attention.exact_one_row_kernel import exact_one_row_kernel
from chairlift.runner.cuda.attention.paged import group, num_stages
from chairlift.runner.cuda.attention.tiling import EXACT_SPLIT, EXACT_TILE, LARGE_HEAD, MAX_PARTS
from chairlift.runner.cuda.dependent_launch import dependent
from chairlift.runner.cuda.step.batch import CudaBatch, parts
from chairlift.runner.cuda.step.layout import QUERIES
from chairlift.runner.ops import Attention


def attend_rows(
    q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, batch: CudaBatch, out: Tensor,
    sinks: Tensor | None = None,
) -> None:  # fmt: skip
    """Each row q [T, heads, head_dim] by itself, unless its short position is -1."""
    _, heads, head_dim = q.shape
    _, kv_heads, block_size, _ = keys.shape
    split, num_splits, tile, warps = batch.tiling
    warps = 4 if head_dim > LARGE_HEAD else warps
    most = max(1, MAX_PARTS // num_splits)  # rows at once: bounds the memory of their parts
    for low in range(0, len(batch.short_positions), most):
        rows = slice(low, low + most)
        positions = batch.short_positions[rows]
        partials, stats = parts(len(positions), heads, num_splits, q) if num_splits > 1 else (out, out)
        exact_rows_kernel[(len(positions), kv_heads, num_splits)](
            q[rows], keys, values, batch.tables, batch.table_rows[rows], positions, partials, stats, sinks,
            out[rows],
            spec.scale, spec.cap, spec.window, batch.tables.shape[1], num_splits,
            HEADS=heads, KV_HEADS=kv_heads, GROUP=group(heads, kv_heads), DIM=head_dim, SIZE=block_size, SPLIT=split,
            TILE=tile, IS_WHOLE=num_splits == 1, HAS_CAP=spec.cap > 0, HAS_SINKS=sinks is not None,
            num_warps=warps, num_stages=min(3, num_stages(tile, head_dim, keys.element_size())),
            enable_fp_fusion=False,
        )  # fmt: skip
        if num_splits > 1:
            join_kernel[(len(positions), heads)](
                partials, stats, positions, sinks, out[rows], spec.window, num_splits,
                HEADS=heads, DIM=head_dim, SPLIT=split, HAS_SINKS=sinks is not None, num_warps=1,
                enable_fp_fusion=False,
            )  # fmt: skip


def attend_prompts(
    q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, batch: CudaBatch, out: Tensor,
    sinks: Tensor | None = None,
) -> None:  # fmt: skip
    """The batch's tiles of QUERIES rows, if there are any."""
    _, heads, head_dim = q.shape
    _, kv_heads, block_size, _ = keys.shape
    if batch.tiles is not None:
        exact_prompt_kernel[(heads, len(batch.tiles))](
            q, keys, values, batch.tables, batch.tiles, sinks, out, spec.scale, spec.cap, spec.window,
            batch.tables.shape[1],
            HEADS=heads, KV_HEADS=kv_heads, DIM=head_dim, SIZE=block_size, QUERIES=QUERIES, SPLIT=EXACT_SPLIT,
            TILE=EXACT_TILE, HAS_CAP=spec.cap > 0, HAS_SINKS=sinks is not None,
            num_warps=8 if head_dim > LARGE_HEAD else 4, enable_fp_fusion=False,
            num_stages=min(2, num_stages(2 * EXACT_TILE, head_dim, keys.element_size())),
        )  # fmt: skip


def attend_one_row(
    qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: CudaBatch, counters: Tensor
) -> Tensor:
    """What `rotate_and_store` and `attend_rows` do with qkv [1, (heads + 2 * kv_heads) * head_dim], in one kernel."""
    _, kv_heads, block_size, head_dim = keys.shape
    spec, tiling = attention.spec, batch.tiling
    heads, num_splits = spec.num_heads, tiling.num_splits
    out = torch.empty(1, heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    partials, stats = parts(1, heads, num_splits, keys)
    exact_one_row_kernel[(kv_heads, num_splits)](
        qkv, attention.rotation, batch.positions, batch.slots, batch.table_rows, batch.tables, keys, values, partials,
        stats, counters, out, spec.scale, spec.cap, spec.window, batch.tables.shape[1], num_splits,
        HEADS=heads, KV_HEADS=kv_heads, GROUP=group(heads, kv_heads), DIM=head_dim, SIZE=block_size,
        SPLIT=tiling.split, TILE=tiling.tile, HAS_CAP=spec.cap > 0, num_warps=4, num_stages=3, enable_fp_fusion=False,
        **dependent(True),
    )  # fmt: skip
    return out
