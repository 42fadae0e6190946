"""One step as the CUDA operations see it."""

from dataclasses import dataclass

from torch import Tensor

from chairlift.runner.cuda.attention.tiling import Tiling
from chairlift.runner.cuda.flashinfer.planner import FlashPlan
from chairlift.runner.ops import Batch


@dataclass(frozen=True, slots=True)
class CudaBatch(Batch):
    """A step whose tables stay on the device: each token names the row of its request. Padding has position -1."""

    table_rows: Tensor  # int32 [T]
    tiling: Tiling  # of the short rows
    tiles: Tensor | None  # int32 [N, 4]: query tiles of long prompt chunks
    # int32 [up to T]: positions of the first rows again, -1 where others answer: the tiles, or who has planned
    short_positions: Tensor
    planned: FlashPlan | None = None  # rows that FlashInfer answers
