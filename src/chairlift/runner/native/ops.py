"""`NativeOps`: the model's operations by the compiled kernels, for bf16 and float32.

Always: each row of a result is computed from its own inputs in a fixed order, so its bits depend neither on the other
rows of the batch nor on the number of threads. Tensors are on the CPU.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import SCORES
from chairlift.runner.kv_cache import store
from chairlift.runner.mixers.delta_net import DeltaNet
from chairlift.runner.mixers.mixer import State
from chairlift.runner.native.delta_net import delta_net
from chairlift.runner.native.experts import NativeExperts, native_experts
from chairlift.runner.native.library import SPIN_NS, load
from chairlift.runner.native.packed import Arena, PackedWeight, pointer
from chairlift.runner.native.quantised import GROUPED, KINDS, from_stored, rounded
from chairlift.runner.native.tape import Calls
from chairlift.runner.ops import (
    PLAIN,
    Adding,
    Attention,
    Batch,
    Experts,
    ExpertWeight,
    Keeps,
    KeepsExperts,
    Norm,
    Weight,
    each_weight,
    ends_normed,
)
from chairlift.runner.sampling.table import Samples
from chairlift.runner.weights.source import Stored

DTYPES = (torch.bfloat16, torch.float32)
MAX_HEAD_DIM = 576  # as in vector.c
NATIVE_ACTIVATIONS = {"silu": 0, "gelu_tanh": 1, "clamped": 2, "gelu": 3}  # as in vector.c


def available() -> bool:
    return load() is not None


class NativeOps:
    is_exact = True

    def __init__(self, threads: int) -> None:
        library = load()
        assert library is not None, "ask available() first"
        library.chairlift_set_threads(threads, SPIN_NS)
        self._library = library
        self._arena = Arena()
        self.calls = Calls(library)
        # Looked up once: a step makes some 270 calls.
        self._norm, self._activate = self.calls.norm, self.calls.activate
        self._rotate, self._attention = self.calls.rotate, self.calls.attention
        self._route, self._experts = self.calls.route, self.calls.experts
        self._gate = self.calls.gate

    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        return PackedWeight(self._library, self.calls, self._arena, matrix, bias)

    def apart(self) -> "NativeOps":
        """The same, with memory of their own for the weights that they make."""
        ops = copy.copy(self)
        ops._arena = Arena(mapping_bytes=1)
        return ops

    @property
    def keeps(self) -> Keeps:
        return dict.fromkeys((*KINDS, *GROUPED), self.stored_weight)

    @property
    def keeps_experts(self) -> KeepsExperts:
        return dict.fromkeys(KINDS, self.stored_experts)

    def stored_weight(self, parts: Sequence[Stored], bias: Tensor | None, dtype: torch.dtype) -> Weight:
        return from_stored(self._library, self.calls, self._arena, parts, bias, dtype)

    def stored_experts(self, parts: Sequence[Stored], bias: Tensor | None, dtype: torch.dtype) -> ExpertWeight:
        biases = [None] * parts[0].shape[0] if bias is None else list(bias)
        own = ([part.expert(expert) for part in parts] for expert in range(len(biases)))
        return self.expert_weights([self.stored_weight(*each, dtype) for each in zip(own, biases, strict=True)])

    def rounded_weight(self, kind: int, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        """As `weight`, rounded to blocks of this type."""
        return rounded(self._library, self.calls, self._arena, kind, matrix, bias)

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        out = self.calls.empty(x.shape, x.dtype)
        width = x.shape[-1]
        self._norm_rows(x.data_ptr(), None, norm, out.data_ptr(), x.numel() // width, width, width, x.dtype)
        return out

    def norms(self, x: Tensor, norms: Sequence[Norm]) -> Sequence[Tensor]:
        return [self.norm(x, norm) for norm in norms]

    def add_norm(self, x: Tensor, residual: Tensor, norm: Norm | None, adding: Adding = PLAIN) -> tuple[Tensor, Tensor]:
        x, residual = ends_normed(self, x, residual, adding)
        if adding.scale != 1.0:
            residual *= adding.scale
        (rows, width), at = x.shape, x.data_ptr()
        factor = adding.factor * adding.scale
        self._norm_rows(at, residual.data_ptr(), norm, at, rows, width, width, x.dtype, factor)
        return residual if norm is None else x, residual

    def _norm_rows(
        self, x: int, residual: int | None, norm: Norm | None, out: int, rows: int, width: int, stride: int,
        dtype: torch.dtype, factor: float = 1.0,
    ) -> None:  # fmt: skip
        """Of rows whose beginnings are `stride` numbers apart."""
        gain, bias, eps, is_centred = (
            (None, None, 0.0, False) if norm is None else (norm.gain, norm.bias, norm.eps, norm.is_centred)
        )
        self._norm(
            x, residual, pointer(gain), pointer(bias), out, rows, width, stride, eps, factor, is_centred,
            dtype is torch.bfloat16,
        )  # fmt: skip

    def _norm_wide(self, qkv: Tensor, attention: Attention, num_gates: int) -> None:
        """All heads of queries and all heads of keys, where they lie."""
        at, (rows, stride), size = qkv.data_ptr(), qkv.shape, qkv.element_size()
        for gain in (attention.q_norm, attention.k_norm):
            assert gain is not None
            self._norm_rows(at, None, Norm(gain, attention.eps), at, rows, len(gain), stride, qkv.dtype)
            at += (len(gain) + num_gates) * size

    def attend_gated(self, given: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        width = attention.spec.num_outputs
        q = self.rotate_and_store(given, attention, keys, values, batch, attention.spec.num_heads)
        out = self.attention(q, attention.spec, keys, values, batch, attention.sinks)
        return self.gate(out, given[:, width : 2 * width])

    def attend(self, qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        qkv = attention.with_values(self, qkv)
        q = self.rotate_and_store(qkv, attention, keys, values, batch)
        return self.attention(q, attention.spec, keys, values, batch, attention.sinks)

    def rotate_and_store(
        self, qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch, num_gates: int = 0
    ) -> Tensor:  # fmt: skip
        """Writes keys and values to the cache. num_gates: heads between queries and keys that are left alone.
        -> queries [T, heads, head_dim]"""
        _, kv_heads, block_size, _ = keys.shape
        kv_heads *= attention.spec.has_own_rows
        heads, head_dim = attention.spec.num_heads, attention.spec.head_dim
        assert head_dim <= MAX_HEAD_DIM
        num_rows = qkv.size(0)
        if is_wide := attention.spec.has_wide_qk_norm:
            self._norm_wide(qkv, attention, num_gates * head_dim)
        gains = (None, None) if is_wide else (attention.q_norm, attention.k_norm)
        q = self.calls.empty((num_rows, heads, head_dim), qkv.dtype)
        self._rotate(
            qkv.data_ptr(), attention.rotation.data_ptr(), batch.positions.data_ptr(), batch.slots.data_ptr(),
            q.data_ptr(), keys.data_ptr(), values.data_ptr(),
            *map(pointer, gains), pointer(attention.query_factors),
            num_rows, heads, num_gates, kv_heads, head_dim, block_size, attention.eps, qkv.dtype is torch.bfloat16,
            keys.dtype is torch.int8,
        )  # fmt: skip
        return q

    def store(self, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> None:
        store(k, v, keys, values, batch.slots)

    def attention(
        self, q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, batch: Batch, sinks: Tensor | None = None
    ) -> Tensor:
        """Causal attention of each chunk over its own context. -> [T, heads * head_dim]"""
        _, kv_heads, block_size, _ = keys.shape
        num_rows, heads, head_dim = q.shape
        out = self.calls.empty((num_rows, heads * head_dim), q.dtype)
        tables = batch.tables
        self._attention(
            q.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(), pointer(sinks),
            batch.starts.data_ptr(), batch.contexts.data_ptr(), tables.data_ptr(), tables.stride(0), tables.size(0),
            heads, kv_heads, head_dim, block_size, spec.scale, spec.cap, spec.window, q.dtype is torch.bfloat16,
            keys.dtype is torch.int8,
        )  # fmt: skip
        return out

    def gate(self, x: Tensor, gates: Tensor) -> Tensor:
        num_rows, width = x.shape
        self._gate(
            x.data_ptr(), gates.data_ptr(), num_rows, width, gates.stride(0), gates.shape[1] == 1,
            x.dtype is torch.bfloat16,
        )  # fmt: skip
        return x

    def delta_net(self, inputs: Tensor, rates: Tensor, mixer: DeltaNet, state: State, batch: Batch) -> Tensor:
        return delta_net(self.calls, inputs, rates, mixer, state, batch)

    def gated(self, weight: Weight, x: Tensor, activation: str) -> Tensor:
        return self.activate(weight.linear(x), activation)

    def activated(self, weight: Weight, x: Tensor, activation: str, times: Tensor | None = None) -> Tensor:
        out = self.activate(weight.linear(x), activation, has_gate=False)
        return out if times is None else out * times

    def activate(self, gate_up: Tensor, activation: str, has_gate: bool = True) -> Tensor:
        num_rows, width = gate_up.shape
        width = width // 2 if has_gate else width
        out = self.calls.empty((num_rows, width), gate_up.dtype)
        self._activate(
            gate_up.data_ptr(), out.data_ptr(), num_rows, width, NATIVE_ACTIVATIONS[activation], has_gate,
            gate_up.dtype is torch.bfloat16,
        )  # fmt: skip
        return out

    def expert_weight(self, matrix: Tensor, bias: Tensor | None = None) -> ExpertWeight:
        return each_weight(self, self.weight, matrix, bias)

    def expert_weights(self, weights: Sequence[Weight]) -> ExpertWeight:
        return native_experts(weights)

    def experts(self, x: Tensor, experts: Experts, shared: Tensor | None, seen: Tensor | None = None) -> Tensor:
        spec, rule, gate_up, down = experts.spec, experts.rule, experts.gate_up, experts.down
        assert isinstance(gate_up, NativeExperts) and isinstance(down, NativeExperts)
        num_rows, width = x.shape
        logits = experts.router.logits(x if seen is None else seen)
        ids = self.calls.empty((num_rows, rule.num_chosen), torch.int32)
        weights = self.calls.empty((num_rows, rule.num_chosen), torch.float32)
        self._route(
            logits.data_ptr(), pointer(experts.correction), pointer(experts.factors), ids.data_ptr(),
            weights.data_ptr(), num_rows, rule.count, rule.num_chosen, SCORES.index(rule.scores),
            rule.is_normalised, rule.num_groups, rule.num_chosen_groups, rule.factor,
        )  # fmt: skip
        out = self.calls.empty((num_rows, width), x.dtype)
        self._experts(
            x.data_ptr(), ids.data_ptr(), weights.data_ptr(), pointer(shared), out.data_ptr(), gate_up.pointer,
            down.pointer, num_rows, width, spec.width, rule.count, rule.num_chosen, gate_up.num_parts, down.num_parts,
            NATIVE_ACTIVATIONS[spec.activation], x.dtype is torch.bfloat16,
        )  # fmt: skip
        return out

    def cap(self, logits: Tensor, cap: float) -> Tensor:
        logits = logits.contiguous()
        self._library.chairlift_cap(logits.data_ptr(), len(logits), logits.shape[1], cap)
        return logits

    def argmax(self, logits: Tensor) -> Tensor:
        logits = logits.contiguous()
        out = torch.empty(len(logits), dtype=torch.int64)
        self._library.chairlift_argmax(logits.data_ptr(), out.data_ptr(), len(logits), logits.shape[1])
        return out

    def draw(self, logits: Tensor, samples: Samples) -> list[int]:
        logits, samples = logits.contiguous(), np.ascontiguousarray(samples)
        out = np.empty(len(samples), np.int64)
        self._library.chairlift_draw(
            logits.data_ptr(), logits.shape[1], len(out), samples.ctypes.data, samples.itemsize, out.ctypes.data
        )
        tokens: list[int] = out.tolist()
        return tokens
