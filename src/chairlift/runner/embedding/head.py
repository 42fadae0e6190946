"""What is made of hidden states: one pooled row for each input, then a vector or scores."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from chairlift.models.embedding.declared import HeadSpec, Pooling
from chairlift.runner.embedding.inputs import Rows
from chairlift.runner.embedding.ops import EncoderOps, apply
from chairlift.runner.ops import Norm, Weight


@dataclass(frozen=True, slots=True)
class ScoreHead:
    spec: HeadSpec
    ops: EncoderOps
    dense: Weight
    norm: Norm | None
    out: Weight

    def __call__(self, pooled: Tensor) -> Tensor:
        """[R, E] -> [R, labels]"""
        x = apply(self.dense.linear(pooled), self.spec.activation)
        if self.norm is not None:
            x, _ = self.ops.add_norm(x, None, self.norm)
        return self.out.linear(x)


def pool(hidden: Tensor, rows: Rows, pooling: Pooling) -> Tensor:
    """hidden [T, E] -> [R, E]. Rows of an input are added up in order, whatever is beside them."""
    if pooling == "cls":
        return hidden[rows.starts[:-1].long()]
    if pooling == "last":
        return hidden[rows.starts[1:].long() - 1]
    lengths = torch.tensor(rows.lengths, device=hidden.device)
    wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    if pooling == "max":
        return torch.segment_reduce(wide, "max", lengths=lengths)
    mean = torch.segment_reduce(wide, "mean", lengths=lengths)
    return mean if pooling == "mean" else mean * lengths[:, None].to(wide.dtype).sqrt()


def normalized(vectors: Tensor) -> Tensor:
    return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)
