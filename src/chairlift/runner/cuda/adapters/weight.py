"""The matrices of a decoder on a GPU whose rows may each have an adapter."""

from dataclasses import dataclass

from torch import Tensor

from chairlift.models.tensors import MatrixKey
from chairlift.runner.adapters.model import AdaptedWeight, with_weights
from chairlift.runner.cuda.adapters.slots import CudaSlots
from chairlift.runner.cuda.ops import CudaWeight
from chairlift.runner.cuda.products.one_row import is_one_row
from chairlift.runner.model import Decoder
from chairlift.runner.ops import Weight


@dataclass(frozen=True, slots=True)
class CudaAdaptedWeight(AdaptedWeight):
    """Of a base that need not be exact."""

    base: CudaWeight
    slots: CudaSlots

    def linear(self, x: Tensor) -> Tensor:
        if not is_one_row(x):
            self.slots.multiply_low(self.key, self.is_chosen, x)
            out = self.base.linear(x)
            self.slots.add_up(self.key, self.is_chosen, out)
            return out
        return self.slots.multiply_row(self.key, self.is_chosen, x, self.base.matrix, self.base.bias)

    def gated(self, x: Tensor, activation: str) -> Tensor | None:
        if is_one_row(x):
            if self.base.bias is not None:
                return None
            return self.slots.multiply_row(self.key, self.is_chosen, x, self.base.matrix, None, activation)
        self.slots.multiply_low(self.key, self.is_chosen, x)
        return self.slots.activate_up(self.key, self.is_chosen, self.base.linear(x), activation)


def adapted(decoder: Decoder, slots: CudaSlots) -> Decoder:
    """The same decoder, with what the adapters in these slots add."""

    def wrap(weight: Weight, key: MatrixKey, is_chosen: bool) -> Weight:
        if isinstance(weight, CudaWeight):
            return CudaAdaptedWeight(weight, key, is_chosen, slots)
        return AdaptedWeight(weight, key, is_chosen, slots)

    return with_weights(decoder, wrap)
