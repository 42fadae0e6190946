"""One step as the CUDA operations see it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from chairlift.runner.cuda.attention.flashinfer_planner import FlashPlan
from chairlift.runner.cuda.attention.tiling import Tiling
from chairlift.runner.cuda.step.states import States
from chairlift.runner.ops import Batch


@dataclass(frozen=True, slots=True)
class CudaBatch(Batch):
    """A step with tables that stay on the device: each token names the row of its request. Padding has position -1."""

    table_rows: Tensor  # int32 [T]
    tiling: Tiling  # of the short rows
    tiles: Tensor | None  # int32 [N, 4]: query tiles of long prompt chunks
    short_positions: Tensor  # int32 [up to T]: positions of the first rows; -1: of a tile
    planned: FlashPlan | None = None  # where FlashInfer computes attention
    states: States | None = None  # of a view of layers with states

    @classmethod
    def of(
        cls, tokens: Tensor, positions: Tensor, slots: Tensor, tables: Tensor, table_rows: Tensor, tiling: Tiling,
        short_positions: Tensor, tiles: Tensor | None = None, planned: FlashPlan | None = None,
        logit_rows: Tensor | None = None,
    ) -> "CudaBatch":  # fmt: skip
        """Without what is told by chunks: no kernel of ours reads it."""
        none, rest = positions[:0], (table_rows, tiling, tiles, short_positions, planned)
        return cls(tokens, positions, slots, none, none, tables, 0, 0, logit_rows, *rest)


def parts(num_rows: int, heads: int, num_splits: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """What stretches of contexts leave until they are joined: weighted values, and the largest score with the sum of
    shares. like: [..., head_dim]"""
    shape = num_rows, heads, num_splits
    partials = torch.empty(*shape, like.shape[-1], dtype=torch.float32, device=like.device)
    return partials, torch.empty(*shape, 2, dtype=torch.float32, device=like.device)
