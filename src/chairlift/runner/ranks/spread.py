"""A decoder whose matrices are one rank's part: products add up over the ranks, logits stand side by side.

    x -> [ qkv -> attend -> output -> sum ] -> [ gate_up -> down -> sum ] -> head -> side by side

All but the wrapped weights is the decoder of one rank.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from chairlift.models.shards import Rank, shard
from chairlift.models.spec import ModelConfig
from chairlift.runner.model import Decoder
from chairlift.runner.ops import Weight
from chairlift.runner.ranks.group import Group


@dataclass(frozen=True, slots=True)
class SummedWeight:
    """Columns of a matrix: each rank multiplies its part of the inputs."""

    part: Weight
    group: Group

    def linear(self, x: Tensor) -> Tensor:
        return self.group.sum(self.part.linear(x))

    def logits(self, x: Tensor) -> Tensor:
        return self.group.sum(self.part.logits(x))

    def rows(self, ids: Tensor) -> Tensor:
        raise RuntimeError("a rank has no whole rows of this matrix")


@dataclass(frozen=True, slots=True)
class SideBySideWeight:
    """Rows of a matrix: each rank has its part of the outputs."""

    part: Weight
    group: Group
    widths: list[int]  # of each rank

    def linear(self, x: Tensor) -> Tensor:
        return self.group.side_by_side(self.part.linear(x), self.widths)

    def logits(self, x: Tensor) -> Tensor:
        return self.group.side_by_side(self.part.logits(x), self.widths)

    def rows(self, ids: Tensor) -> Tensor:
        raise RuntimeError("a rank has only some rows of this matrix")


def spread(decoder: Decoder, config: ModelConfig, group: Group) -> Decoder:
    """decoder: of the rank's part of `config`."""
    ranks = [Rank(index, group.rank.count) for index in range(group.rank.count)]
    widths = [shard(config, rank).num_head_rows or config.vocab_size for rank in ranks]
    layers = []
    for layer in decoder.layers:
        assert layer.down is not None, "check_cuts refuses experts"
        layers.append(replace(layer, output=SummedWeight(layer.output, group), down=SummedWeight(layer.down, group)))
    return replace(decoder, layers=tuple(layers), head=SideBySideWeight(decoder.head, group, widths))
