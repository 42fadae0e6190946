"""The encoder: walks the layers that a model's configuration declares. Every position sees its whole input. Then its
hidden states become one pooled row for each input, and a vector or scores.

Letters in shapes: T tokens of a step, R inputs, E hidden, F inner width of the feed-forward.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from chairlift.models.embedding.declared import EncoderConfig, EncoderLayerSpec, HeadSpec, Pooling
from chairlift.runner.embedding.inputs import Rows
from chairlift.runner.embedding.ops import EncoderAttention, EncoderOps, apply
from chairlift.runner.model import OnLayer, nothing
from chairlift.runner.ops import Norm, Weight


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    spec: EncoderLayerSpec
    attention: EncoderAttention
    qkv: Weight  # [3E, E]
    output: Weight  # [E, E]
    up: Weight  # [F, E], gated [2F, E]
    down: Weight  # [E, F]
    attention_norm: Norm | None
    feed_forward_norm: Norm


@dataclass(frozen=True, slots=True)
class Encoder:
    config: EncoderConfig
    ops: EncoderOps
    embedding: Tensor  # [vocab, E]
    positions: Tensor | None  # [max_len, E], from the row of the first token on
    types: Tensor | None  # [types, E]
    embedding_norm: Norm
    layers: tuple[EncoderLayer, ...]
    final_norm: Norm | None

    def hidden(self, rows: Rows, on_layer: OnLayer = nothing) -> Tensor:
        """-> [T, E]"""
        x = F.embedding(rows.tokens, self.embedding)
        if self.types is not None:
            # A model of one type has it for both texts.
            x += F.embedding(rows.types.clamp(max=len(self.types) - 1), self.types)
        if self.positions is not None:
            x += F.embedding(rows.positions, self.positions)
        x, _ = self.ops.add_norm(x, None, self.embedding_norm)
        walk = self._with_norms_before if self.config.has_norm_before else self._with_norms_after
        return walk(x, rows, on_layer)

    def _with_norms_after(self, x: Tensor, rows: Rows, on_layer: OnLayer) -> Tensor:
        ops = self.ops
        for layer in self.layers:
            on_layer()
            assert layer.attention_norm is not None
            x, _ = ops.add_norm(self._attend(layer, x, rows), x, layer.attention_norm)
            x, _ = ops.add_norm(self._feed_forward(layer, x), x, layer.feed_forward_norm)
        return x

    def _with_norms_before(self, x: Tensor, rows: Rows, on_layer: OnLayer) -> Tensor:
        ops = self.ops
        branch, residual = x, None
        for layer in self.layers:
            on_layer()
            if layer.attention_norm is None:
                x = residual = branch if residual is None else branch + residual
            else:
                x, residual = ops.add_norm(branch, residual, layer.attention_norm)
            x, residual = ops.add_norm(self._attend(layer, x, rows), residual, layer.feed_forward_norm)
            branch = self._feed_forward(layer, x)
        assert self.final_norm is not None
        return ops.add_norm(branch, residual, self.final_norm)[0]

    def _attend(self, layer: EncoderLayer, x: Tensor, rows: Rows) -> Tensor:
        return layer.output.linear(self.ops.attend(layer.qkv.linear(x), layer.attention, rows))

    def _feed_forward(self, layer: EncoderLayer, x: Tensor) -> Tensor:
        spec = layer.spec
        return layer.down.linear(self.ops.activate(layer.up.linear(x), spec.activation, spec.is_gated))


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
