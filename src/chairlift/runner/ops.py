"""The operations of a model, as a protocol: `TorchOps` runs anywhere, the others are faster on one kind of device."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, dtype

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import ExpertsSpec, FeedForwardSpec
from chairlift.runner.mixers.mixer import State
from chairlift.runner.sampling.table import Samples
from chairlift.runner.weights.source import Stored


class StateWrite(NamedTuple):
    """A state that a layer is to write to further pages when its tokens pass there."""

    position: int  # tokens that it follows
    pages: Tensor  # int64, of the layer's group


@dataclass(frozen=True, slots=True)
class Batch:
    """One step as tensors. T tokens of R chunks; the first `num_decodes` chunks have one token each."""

    tokens: Tensor  # int64 [T]
    positions: Tensor  # int64 [T]
    slots: Tensor  # int64 [T]: block * block_size + offset, where each token's key and value go
    starts: Tensor  # int32 [R + 1]: chunk r is rows starts[r] : starts[r + 1]
    contexts: Tensor  # int32 [R]: tokens in the cache after this step, the chunk's own included
    tables: Tensor  # int32 [R, W]: block tables, padded with 0 to the longest
    num_decodes: int
    max_context: int
    logit_rows: Tensor | None  # int [S]: rows whose logits are wanted; None: all, in order
    # The same step as groups of layers see it that do not keep all tokens, with tables of their own. With a window,
    # what lies behind it is not to be read. With a state, tables are [R, 2, pages]: of each half the pages of a tile's
    # rows, then those of the state before it.
    views: "tuple[Batch, ...]" = field(default=(), kw_only=True)
    state_writes: Mapping[int, Sequence[StateWrite]] = field(default_factory=dict, kw_only=True)  # of such a view
    num_tile_pages: int = field(default=0, kw_only=True)  # of a half, its first
    # int64 [T]: the slot of each row's adapter, -1: none; None: no row has one, or the operations know them otherwise
    adapters: Tensor | None = field(default=None, kw_only=True)

    def of_group(self, group: int) -> "Batch":
        """As layers of this group of the KV cache see it."""
        return self.views[group - 1] if group else self


class Weight(Protocol):
    """A matrix [out, in] held once, in the layout of its operations."""

    def linear(self, x: Tensor) -> Tensor:
        """x [T, in] -> [T, out], bias added if there is one."""

    def logits(self, x: Tensor) -> Tensor:
        """As `linear`, in float32 for weights of any type: x [T, in] -> [T, out]."""

    def rows(self, ids: Tensor) -> Tensor:
        """Rows of the matrix, as an embedding table: ids [T] -> [T, in]."""


MakeWeight = Callable[[Tensor, Tensor | None], Weight]  # of a matrix and a bias, as `Ops.weight` does


@dataclass(frozen=True, slots=True)
class Norm:
    """x / sqrt(mean(x^2) + eps) * gain + bias, of x without its mean where it is centred."""

    gain: Tensor
    eps: float
    bias: Tensor | None = None
    is_centred: bool = False


@dataclass(frozen=True, slots=True)
class Adding:
    """How x is added to a residual: (base(residual) + factor * after(x)) * scale, without the norms that are None.
    These have a gain alone."""

    factor: float = 1.0
    after: Norm | None = None
    scale: float = 1.0
    base: Norm | None = None


PLAIN = Adding()


@dataclass(frozen=True, slots=True)
class Attention:
    """A layer's attention beside its matrices."""

    spec: AttentionSpec
    rotation: Tensor  # float32 [max_len, head_dim]: head_dim / 2 cosines, then as many sines, of the half-split form
    q_norm: Tensor | None  # [head_dim], or of all heads where it is wide
    k_norm: Tensor | None
    eps: float
    query_factors: Tensor | None = None  # float32 [max_len]: of queries, by position
    sinks: Tensor | None = None  # float32 [heads]
    v_norm: Norm | None = None  # of each head of values

    def mix(self, ops: "Ops", x: Tensor, weights: Mapping[str, Weight], state: State, batch: Batch) -> Tensor:
        """As a `Mixer`."""
        keys, values = state
        qkv = weights["qkv"].linear(x)
        if not self.spec.has_gate:
            return ops.attend(qkv, self, keys, values, batch)
        if self.has_plain_values and isinstance(ops, GatedOps):
            return ops.attend_gated(qkv, self, keys, values, batch)
        width = self.spec.num_outputs
        queries, gates, others = qkv.tensor_split((width, 2 * width), dim=1)
        out = ops.attend(torch.cat((queries, others), dim=1), self, keys, values, batch)
        return ops.gate(out, gates)

    @property
    def has_plain_values(self) -> bool:
        """They are cached as the matrix gives them."""
        return not self.spec.has_own_rows or (self.v_norm is None and not self.spec.has_keys_as_values)

    def with_values(self, ops: "Ops", qkv: Tensor) -> Tensor:
        """qkv with values as they are cached, for operations whose kernels neither norm them nor take keys for them."""
        if self.has_plain_values:
            return qkv
        width = self.spec.num_kv_heads * self.spec.head_dim
        values = qkv[:, -width:]  # the keys, where these are the values too
        if self.v_norm is not None:
            values = ops.norm(values.reshape(-1, self.spec.head_dim).contiguous(), self.v_norm).view(len(qkv), width)
        return torch.cat((qkv[:, : self.spec.num_outputs + width], values), dim=1)


class ExpertWeight(Protocol):
    """A matrix [out, in] of each expert, in the layout of the operations that made it."""


@dataclass(frozen=True, slots=True)
class EachWeight:
    """Experts' matrices as weights of their own."""

    weights: tuple[Weight, ...]


# By kind, of matrices with their rows one after the other, a bias, and the type of what comes out.
Keeps = Mapping[str, Callable[[Sequence[Stored], Tensor | None, dtype], Weight]]
KeepsExperts = Mapping[str, Callable[[Sequence[Stored], Tensor | None, dtype], ExpertWeight]]


NO_KINDS: Mapping[str, Any] = {}  # of operations that keep none


@runtime_checkable
class TakesWeights(Protocol):
    """Operations that take experts' matrices one by one."""

    def expert_weights(self, weights: Sequence[Weight]) -> ExpertWeight: ...


def each_weight(ops: TakesWeights, make: MakeWeight, matrix: Tensor, bias: Tensor | None) -> ExpertWeight:
    """Of matrix [X, out, in] and bias [X, out], each expert's made by itself."""
    biases = [None] * len(matrix) if bias is None else list(bias)
    return ops.expert_weights([make(own, own_bias) for own, own_bias in zip(matrix, biases, strict=True)])


@dataclass(frozen=True, slots=True)
class ExpertNorms:
    router: Norm
    before: Norm
    after: Norm
    after_shared: Norm


@dataclass(frozen=True, slots=True)
class Experts:
    """A layer's mixture. X experts, each of inner width F."""

    spec: FeedForwardSpec
    router: Weight  # [X, E]
    correction: Tensor | None  # float32 [X]
    gate_up: ExpertWeight  # [2F, E] each: rows of the gate, then of the up projection
    down: ExpertWeight  # [E, F] each
    factors: Tensor | None = None  # float32 [X]
    norms: ExpertNorms | None = None
    shared_gate: Weight | None = None  # [1, E]

    @property
    def rule(self) -> ExpertsSpec:
        assert self.spec.experts is not None
        return self.spec.experts


def ends_normed(ops: "Ops", x: Tensor, residual: Tensor, adding: Adding) -> tuple[Tensor, Tensor]:
    """Both after their norms, for operations that add what is normed."""
    x = x if adding.after is None else ops.norm(x, adding.after)
    return x, residual if adding.base is None else ops.norm(residual, adding.base)


class Ops(Protocol):
    """Gains and biases of norms are float32 at least."""

    @property
    def is_exact(self) -> bool:
        """A row has the same bits whatever the others are."""

    @property
    def keeps(self) -> Keeps:
        """Quantised matrices that are multiplied by as they are stored: what makes a weight of them."""

    @property
    def keeps_experts(self) -> KeepsExperts:
        """The same of experts' matrices."""

    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        """Takes a matrix over, in the layout that is fastest here; the caller drops its copy."""

    def norm(self, x: Tensor, norm: Norm) -> Tensor: ...

    def norms(self, x: Tensor, norms: Sequence[Norm]) -> Sequence[Tensor]:
        """Each as `norm`."""

    def add_norm(self, x: Tensor, residual: Tensor, norm: Norm | None, adding: Adding = PLAIN) -> tuple[Tensor, Tensor]:
        """(norm(sum), sum) of residual and x, added as told; without a norm the sum twice; may overwrite both."""

    def attend(self, qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """Splits qkv [T, (heads + 2 * kv_heads) * head_dim], normalises and rotates q and k, writes k and v to their
        slots of keys and values ([num_blocks, kv_heads, block_size, head_dim]), and attends each chunk's queries to its
        own context. Values may have a norm; where keys are values too there is one copy of both. Without rows of its
        own a layer has queries alone, and writes nothing. -> [T, heads * head_dim]; may overwrite qkv."""

    def gate(self, x: Tensor, gates: Tensor) -> Tensor:
        """x [T, W] * sigmoid(gates), [T, W] or [T, 1]; may overwrite x."""

    def gated(self, weight: Weight, x: Tensor, activation: str) -> Tensor:
        """weight [2 * F, E], x [T, E] -> activation(first half of the product) * second half, [T, F]."""

    def activated(self, weight: Weight, x: Tensor, activation: str, times: Tensor | None = None) -> Tensor:
        """weight [F, E], x [T, E] -> activation(product), [T, F]; times as many numbers, where they are given."""

    def expert_weight(self, matrix: Tensor, bias: Tensor | None = None) -> ExpertWeight:
        """As `weight`, of every expert: matrix [X, out, in], bias [X, out]."""

    def experts(self, x: Tensor, experts: Experts, shared: Tensor | None, seen: Tensor | None = None) -> Tensor:
        """What the experts that each row of x [T, E] chooses give, weighed and added up in the order of the choices,
        to `shared` if there is one. seen: what the router sees in place of x. -> [T, E]; may overwrite `shared`."""

    def cap(self, logits: Tensor, cap: float) -> Tensor:
        """cap * tanh(logits / cap), float32 [T, V]; may overwrite them."""

    def argmax(self, logits: Tensor) -> Tensor:
        """The first of the largest of each row: float32 [T, V] -> int64 [T]; a row with a NaN gives -1."""


@runtime_checkable
class GatedOps(Protocol):
    """Operations that take what a matrix gives of heads with gates as it is."""

    def attend_gated(self, given: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """As `Ops.attend` and `Ops.gate`, of given [T, (2 * heads + 2 * kv_heads) * head_dim]: queries, gates, keys,
        values."""


@runtime_checkable
class PagedOps(Ops, Protocol):
    """Operations whose attention can be had by itself, for layers that are not ours."""

    def store(self, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> None:
        """Writes k and v [T, kv_heads, head_dim] to their slots of the cache."""

    def attention(
        self, q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, batch: Batch, sinks: Tensor | None = None
    ) -> Tensor:
        """Causal attention of each row q [T, heads, head_dim] over its own context. sinks [heads]: of scores without a
        value. -> [T, heads * head_dim]"""


@runtime_checkable
class Drawing(Protocol):
    """Operations that also draw tokens, by the torch sampler's noise and faster."""

    def draw(self, logits: Tensor, samples: Samples) -> list[int]:
        """A token for each sample of float32 [S, V]. Largest logits are finite; no sample is greedy, or has
        filters other than `FAST` ones."""
