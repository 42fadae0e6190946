"""What a layer does with a token and those before it: one object for each layer, beside its matrices.

    x [T, E] -> mixer: matrices, and what it keeps of the tokens before -> [T, W] -> the layer's output matrix -> [T, E]

Always: what a row gets depends on the tokens of its own request alone; what later tokens need is in the state then.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from chairlift.runner.ops import Batch, Ops, Weight

State = tuple[Tensor, ...]  # a layer's tensors of the cache, [num_blocks, ...] each


class Mixer(Protocol):
    def mix(self, ops: "Ops", x: Tensor, weights: "Mapping[str, Weight]", state: State, batch: "Batch") -> Tensor:
        """weights: by role, as its declaration names them. batch: as the layer's group sees the step."""
