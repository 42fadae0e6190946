"""The decoder: walks the layers that a model's configuration declares.

Letters in shapes: T tokens of a step, S of them wanted as logits, E hidden, F inner width of the feed-forward, H heads,
K heads of keys and values, D values per head. Knows `Ops` alone, nothing of requests, devices or files.

    tokens -> rows of the embedding -> [ mixer, +, feed-forward, + ] x layers -> norm -> head -> logits

A mixer computes something of a token and of those before it (`mixers/mixer.py`): attention, say.

A branch's output is added together with the norms after it and the next one, in one operation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from chairlift.models.spec import LayerSpec, ModelConfig
from chairlift.runner.kv_cache import Cache, KvCache
from chairlift.runner.mixers.mixer import Mixer
from chairlift.runner.ops import Adding, Attention, Batch, ExpertNorms, Experts, Norm, Ops, Weight

OnLayer = Callable[[], None]  # called before each layer


def nothing() -> None:
    """The hook of a run without one."""


Kv = TypeVar("Kv", bound=Cache, contravariant=True)


class Model(Protocol[Kv]):
    """What a runner needs of a decoder."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def ops(self) -> Ops: ...

    def hidden(self, batch: Batch, kv: Kv, on_layer: OnLayer = nothing) -> Tensor:
        """Writes the keys and values of every token and returns the head's inputs, of the batch's `logit_rows`.
        -> [S, E]"""

    def logits(self, hidden: Tensor) -> Tensor:
        """[S, E] -> [S, vocab], in float32 at least."""


class PagedModel(Model[KvCache], Protocol):
    """A model that says what its layers attend by, those that do, for runners that choose kernels for it."""

    @property
    def attentions(self) -> Sequence[Attention]: ...
    @property
    def dtype(self) -> torch.dtype: ...


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """What each token brings to each layer, of its id and its row of the embedding."""

    table: Weight  # [vocab, L * W]
    projection: Weight  # [L * W, E]
    norm: Norm  # of W, of what the projection gives of rows of the embedding as they are
    width: int

    def of(self, ops: Ops, tokens: Tensor, embedded: Tensor) -> Tensor:
        """embedded: rows of the embedding. -> [T, L, W]"""
        context, rows = self.projection.linear(embedded).view(-1, self.width), self.table.rows(tokens)
        grown = self.width**0.5  # by which rows grow; the sum shrinks
        adding = Adding(factor=1 / grown, after=self.norm, scale=grown * 0.5**0.5)
        both, _ = ops.add_norm(context, rows.view(context.shape), None, adding)
        return both.view(len(tokens), -1, self.width)


@dataclass(frozen=True, slots=True)
class TokenBranch:
    """What a layer makes of it."""

    gate: Weight  # [W, E]
    output: Weight  # [E, W]
    norm: Norm

    def through(self, ops: Ops, x: Tensor, brought: Tensor, activation: str) -> Tensor:
        """x: the residual; brought [T, W] -> what is added to it after a norm"""
        return self.output.linear(ops.activated(self.gate, x, activation, brought))


@dataclass(frozen=True, slots=True)
class Layer:
    spec: LayerSpec
    mixer: Mixer
    weights: Mapping[str, Weight]  # of the mixer, by role
    output: Weight  # [E, numbers of a token that the mixer gives]
    # What every token takes; None: there are experts alone.
    gate_up: Weight | None  # [2F, E]: rows of the gate, then of the up projection; without a gate [F, E]
    down: Weight | None  # [E, F]
    experts: Experts | None
    # None: there is none.
    before_attention: Norm | None
    after_attention: Norm | None
    before_feed_forward: Norm | None
    after_feed_forward: Norm | None
    token: TokenBranch | None = None
    scalar: float = 1.0  # of the residual at the end

    def feed_forward(self, ops: Ops, x: Tensor, residual: Tensor) -> Tensor:
        """[T, E] -> [T, E]"""
        spec, y = self.spec.feed_forward, None
        if self.gate_up is not None and self.down is not None:
            activate = ops.gated if spec.has_gate else ops.activated
            y = self.down.linear(activate(self.gate_up, x, spec.activation))
        if self.experts is not None:
            if y is not None and self.experts.shared_gate is not None:
                y = ops.gate(y, self.experts.shared_gate.linear(x))
            norms = self.experts.norms
            y = ops.experts(x, self.experts, y) if norms is None else self._apart(ops, self.experts, norms, residual, y)
        assert y is not None
        return y

    @staticmethod
    def _apart(ops: Ops, experts: Experts, norms: ExpertNorms, residual: Tensor, shared: Tensor | None) -> Tensor:
        """Experts with norms of their own."""
        x, seen = ops.norms(residual, (norms.before, norms.router))
        y = ops.experts(x, experts, None, seen)
        if shared is None:
            return ops.norm(y, norms.after)
        return ops.add_norm(y, shared, None, Adding(after=norms.after, base=norms.after_shared))[0]


@dataclass(frozen=True, slots=True)
class Decoder:
    config: ModelConfig
    ops: Ops
    embedding: Weight  # [vocab, E]
    layers: tuple[Layer, ...]
    norm: Norm
    head: Weight  # [vocab, E]; the embedding itself when tied
    embedding_factor: float  # rounded to the model's number type
    dtype: torch.dtype  # of the hidden states
    max_len: int  # of a text
    token_inputs: TokenInputs | None = None

    @property
    def attentions(self) -> Sequence[Attention]:
        return [layer.mixer for layer in self.layers if isinstance(layer.mixer, Attention)]

    def hidden(self, batch: Batch, kv: KvCache, on_layer: OnLayer = nothing) -> Tensor:
        # A name for the rows would keep their memory while the layers run.
        return self.through_layers(self.embedding.rows(batch.tokens), None, batch, kv, on_layer)

    def through_layers(
        self, x: Tensor, residual: Tensor | None, batch: Batch, kv: KvCache, on_layer: OnLayer = nothing
    ) -> Tensor:
        """x: rows of the embedding [T, E]; residual: zeros (None: made here); overwrites both. -> the head's inputs.
        Once the last layer's mixer has seen all rows, only those go on whose logits are wanted."""
        ops, rows = self.ops, batch.logit_rows
        residual = torch.zeros_like(x) if residual is None else residual
        adding = Adding(self.embedding_factor)
        brought = None if self.token_inputs is None else self.token_inputs.of(ops, batch.tokens, x)
        for index, (layer, state, group) in enumerate(zip(self.layers, kv.state, kv.groups, strict=True)):
            on_layer()
            x, residual = ops.add_norm(x, residual, layer.before_attention, adding)
            beside = x if layer.spec.is_parallel else None
            x = layer.mixer.mix(ops, x, layer.weights, state, batch.of_group(group))
            if rows is not None and layer is self.layers[-1]:
                x, residual = x.index_select(0, rows), residual.index_select(0, rows)
                beside = None if beside is None else beside.index_select(0, rows)
                brought = None if brought is None else brought.index_select(0, rows)
                if not len(rows):
                    return residual
            x = layer.output.linear(x)
            factor = layer.spec.residual_factor
            x, residual = ops.add_norm(x, residual, layer.before_feed_forward, Adding(factor, layer.after_attention))
            x = layer.feed_forward(ops, x if beside is None else beside, residual)
            after = layer.after_feed_forward
            if layer.token is not None and brought is not None:
                x, residual = ops.add_norm(x, residual, None, Adding(factor, after))
                x = layer.token.through(ops, x, brought[:, index], layer.spec.feed_forward.activation)
                factor, after = 1.0, layer.token.norm
            adding = Adding(factor, after, layer.scalar)
        x, _ = ops.add_norm(x, residual, self.norm, adding)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        logits, cap = self.head.logits(hidden), self.config.logit_cap
        return self.ops.cap(logits, cap) if cap else logits
