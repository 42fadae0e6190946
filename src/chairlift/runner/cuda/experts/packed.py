"""Experts that stay on the GPU as their file has them: those that a step chose are widened before its products.

Always: as of `products/packed.py`, with both matrices of a layer in the scratch.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from chairlift.runner.cuda.experts.matrices import CudaExperts
from chairlift.runner.cuda.products.packed import Packed, Scratch, pack
from chairlift.runner.ops import Experts
from chairlift.runner.weights.source import Stored


@dataclass(frozen=True, slots=True)
class PackedExperts:
    packed: Packed  # rows of all experts, one after the other
    bias: Tensor | None  # [X, out]
    shape: tuple[int, ...]  # [X, out, in]
    dtype: torch.dtype
    scratch: Scratch

    def widened(self, chosen: Tensor, out: Tensor) -> CudaExperts:
        count, rows, columns = self.shape
        self.packed.widen(out.view(count * rows, columns), chosen, rows)
        return CudaExperts(out, self.bias)


def packed_experts(whole: Stored, bias: Tensor | None, dtype: torch.dtype, scratch: Scratch) -> PackedExperts:
    """whole: [experts, out, in], on the device."""
    count, rows, columns = whole.shape
    tensors = tuple(each.flatten(0, 1) for each in whole.tensors)
    packed = pack(replace(whole, tensors=tensors, shape=(count * rows, columns)))
    scratch.reserve_beside_last(count * rows * columns, dtype, packed.codes.device)
    return PackedExperts(packed, bias, whole.shape, dtype, scratch)


def widened(experts: Experts, ids: Tensor) -> Experts:
    """The matrices of these experts as numbers, where they are packed."""
    both = experts.gate_up, experts.down
    packed = [each for each in both if isinstance(each, PackedExperts)]
    if not packed:
        return experts
    chosen = torch.zeros(experts.rule.count, dtype=torch.int32, device=ids.device)
    chosen.index_fill_(0, ids.flatten().long(), 1)
    outs = iter(packed[0].scratch.matrices([each.shape for each in packed], packed[0].dtype))
    wide = [each.widened(chosen, next(outs)) if isinstance(each, PackedExperts) else each for each in both]
    packed[0].scratch.settle()
    return replace(experts, gate_up=wide[0], down=wide[1])
