"""Launches the attention kernels of `--exact`. The number of warps changes nothing but the time."""

import torch
from torch import Tensor

from chairlift.config.model import AttentionSpec
from chairlift.runner.cuda.attention.paged import group
from chairlift.runner.cuda.attention.tiling import EXACT_SPLIT, EXACT_TILE, MAX_PARTS, Tiling
from chairlift.runner.cuda.dependent_launch import dependent
from chairlift.runner.cuda.exact.attention_kernels import exact_prompt_kernel, exact_rows_kernel, join_kernel
from chairlift.runner.cuda.exact.one_row_kernel import exact_one_row_kernel
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.cuda.step.layout import QUERIES
from chairlift.runner.ops import Attention


def attend_rows(
    q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, table_rows: Tensor, positions: Tensor, tiling: Tiling,
    spec: AttentionSpec, out: Tensor,
) -> None:  # fmt: skip
    """Each row q [T, heads, head_dim] by itself; position -1: it is not answered."""
    _, heads, head_dim = q.shape
    _, kv_heads, block_size, _ = keys.shape
    split, num_splits, tile, warps = tiling
    most = max(1, MAX_PARTS // num_splits)  # rows at once: bounds the memory of their parts
    for low in range(0, len(positions), most):
        rows = slice(low, min(low + most, len(positions)))
        count = rows.stop - low
        partials = stats = out
        if num_splits > 1:
            partials = torch.empty(count, heads, num_splits, head_dim, dtype=torch.float32, device=q.device)
            stats = torch.empty(count, heads, num_splits, 2, dtype=torch.float32, device=q.device)
        exact_rows_kernel[(count, kv_heads, num_splits)](
            q[rows], keys, values, tables, table_rows[rows], positions[rows], partials, stats, out[rows], spec.scale,
            spec.cap, spec.window, tables.shape[1], num_splits,
            HEADS=heads, KV_HEADS=kv_heads, GROUP=group(heads, kv_heads), DIM=head_dim, SIZE=block_size, SPLIT=split,
            TILE=tile, IS_WHOLE=num_splits == 1, HAS_CAP=spec.cap > 0,
            num_warps=warps, num_stages=3, enable_fp_fusion=False,
        )  # fmt: skip
        if num_splits > 1:
            join_kernel[(count, heads)](
                partials, stats, positions[rows], out[rows], spec.window, num_splits,
                HEADS=heads, DIM=head_dim, SPLIT=split, num_warps=1, enable_fp_fusion=False,
            )  # fmt: skip


def attend_prompts(
    q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, tiles: Tensor, spec: AttentionSpec, out: Tensor
) -> None:
    """Tiles of QUERIES rows, see `exact_prompt_kernel`."""
    _, heads, head_dim = q.shape
    _, kv_heads, block_size, _ = keys.shape
    exact_prompt_kernel[(heads, len(tiles))](
        q, keys, values, tables, tiles, out, spec.scale, spec.cap, spec.window, tables.shape[1],
        HEADS=heads, KV_HEADS=kv_heads, DIM=head_dim, SIZE=block_size, QUERIES=QUERIES, SPLIT=EXACT_SPLIT,
        TILE=EXACT_TILE, HAS_CAP=spec.cap > 0, num_warps=4, num_stages=2, enable_fp_fusion=False,
    )  # fmt: skip


def attend_one_row(
    qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: CudaBatch, counters: Tensor
) -> Tensor:
    """What `rotate_and_store` and `attend_rows` do with qkv [1, (heads + 2 * kv_heads) * head_dim], in one kernel."""
    _, kv_heads, block_size, head_dim = keys.shape
    spec, tiling = attention.spec, batch.tiling
    heads, num_splits = spec.num_heads, tiling.num_splits
    out = torch.empty(1, heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    partials = torch.empty(heads, num_splits, head_dim, dtype=torch.float32, device=qkv.device)
    stats = torch.empty(heads, num_splits, 2, dtype=torch.float32, device=qkv.device)
    exact_one_row_kernel[(kv_heads, num_splits)](
        qkv, attention.rotation, batch.positions, batch.slots, batch.table_rows, batch.tables, keys, values, partials,
        stats, counters, out, spec.scale, spec.cap, spec.window, batch.tables.shape[1], num_splits,
        HEADS=heads, KV_HEADS=kv_heads, GROUP=group(heads, kv_heads), DIM=head_dim, SIZE=block_size,
        SPLIT=tiling.split, TILE=tiling.tile, HAS_CAP=spec.cap > 0, num_warps=4, num_stages=3, enable_fp_fusion=False,
        **dependent(True),
    )  # fmt: skip
    return out
