"""Adapters in the host's memory that already lie as in a slot."""

from torch import Tensor

from chairlift.runner.cuda.adapters.layout import RANKS
from chairlift.runner.cuda.adapters.pieces import Placed, SlotAdapter, packed


def flat_adapter(numbers: Tensor, num_blocks: int) -> SlotAdapter:
    return packed([Placed(numbers.view(-1, RANKS), 0, RANKS)], num_blocks, len(numbers))
