"""The model's operations in plain torch: the reference for every other implementation, and what runs anywhere.

Always: norms, rotations and softmax are computed in float32 at least; with `exact` a row's bits do not depend on the
other rows. Knows batches, nothing of requests.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import CLAMP, STEEPNESS
from chairlift.runner.kv_cache import store
from chairlift.runner.machine.instructions import architecture
from chairlift.runner.ops import (
    NO_KINDS,
    PLAIN,
    Adding,
    Attention,
    Batch,
    EachWeight,
    Experts,
    ExpertWeight,
    Keeps,
    KeepsExperts,
    Norm,
    Weight,
    each_weight,
    ends_normed,
)
from chairlift.runner.row_exact import UNSPLIT, sigmoid
from chairlift.runner.torch.exact_attention import exact_attention
from chairlift.runner.torch.experts import mix, route
from chairlift.runner.torch.fixed_rows import FixedRowsWeight, RowCounts
from chairlift.runner.torch.sdpa import MAX_GATHERED, gather, weighted, without_cudnn

_MAX_QUERIES = 512  # rows of a prompt chunk at once: bounds the mask and the scores
_CHOOSING = ("cpu", "cuda")  # devices that tokens are chosen on; others may lack the number types
_MAX_WIDENED = 4096  # rows of a matrix that are held in float32 at once
# 0.5 x (1 + tanh(u)) is x sigmoid(2u), and 2u = _GELU * (x + 0.044715 x^3).
_GELU = 2 * math.sqrt(2 / math.pi)


class TorchWeight:
    """A matrix [out, in] as it is, or in oneDNN's layout from its first product on.

    That layout has no readable rows and a matrix is not held twice, so embedding tables stay plain.
    """

    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        self._matrix = matrix.contiguous()
        self._bias = bias
        self._can_pack = _can_pack(matrix)
        self._is_slow = _is_slow(matrix)
        self._packed: Tensor | None = None

    def linear(self, x: Tensor) -> Tensor:
        if self._can_pack:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._matrix)
            self._matrix = self._matrix.new_empty(0)
            self._can_pack = False
        if self._packed is not None:
            return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        if self._is_slow:
            return self._widened(x).to(x.dtype)
        return F.linear(x, self._matrix, self._bias)

    def logits(self, x: Tensor) -> Tensor:
        # Rounded to bf16, close logits would become equal.
        if _is_bf16_on_cpu(x) and self._packed is None:
            return self._widened(x)
        out = self.linear(x) if x.device.type in _CHOOSING else self.linear(x).cpu()
        return out if out.dtype is torch.float64 else out.float()

    def _widened(self, x: Tensor) -> Tensor:
        """The product in float32; some rows of the matrix at a time, to bound memory."""
        wide = x.float()
        product = torch.cat([F.linear(wide, rows.float()) for rows in self._matrix.split(_MAX_WIDENED)], dim=1)
        return product if self._bias is None else product + self._bias

    def rows(self, ids: Tensor) -> Tensor:
        if self._packed is not None:
            raise RuntimeError("a matrix laid out for multiplication has no readable rows")
        self._can_pack = False
        return F.embedding(ids, self._matrix)


def _is_bf16_on_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype is torch.bfloat16


def _is_slow(matrix: Tensor) -> bool:
    """Whether torch multiplies these numbers one by one, dozens of times slower than float32: it does without
    instructions for them, and with float16 on ARM in any case."""
    if matrix.device.type != "cpu" or matrix.dtype not in (torch.bfloat16, torch.float16):
        return False
    if not torch.backends.mkldnn.is_available():
        return True
    if matrix.dtype is torch.float16:
        return architecture() == "aarch64" or not torch.ops.mkldnn._is_mkldnn_fp16_supported()
    return not torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _can_pack(matrix: Tensor) -> bool:
    return (
        _is_bf16_on_cpu(matrix)
        and torch.backends.mkldnn.is_available()
        and torch.cpu._is_avx512_bf16_supported()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


class TorchOps:
    keeps: Keeps = NO_KINDS
    keeps_experts: KeepsExperts = NO_KINDS

    def __init__(self, exact: bool = False) -> None:
        self._exact = self.is_exact = exact
        self._found: RowCounts = {}

    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        return FixedRowsWeight(TorchWeight, matrix, bias, self._found) if self._exact else TorchWeight(matrix, bias)

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        return normed(x, norm)

    def norms(self, x: Tensor, norms: Sequence[Norm]) -> Sequence[Tensor]:
        return [self.norm(x, norm) for norm in norms]

    def add_norm(self, x: Tensor, residual: Tensor, norm: Norm | None, adding: Adding = PLAIN) -> tuple[Tensor, Tensor]:
        x, residual = ends_normed(self, x, residual, adding)
        residual += x if adding.factor == 1.0 else x * adding.factor
        if adding.scale != 1.0:
            residual *= adding.scale
        return residual if norm is None else self.norm(residual, norm), residual

    def attend(self, qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        qkv = attention.with_values(self, qkv)
        q = self.rotate_and_store(qkv, attention, keys, values, batch)
        return self.attention(q, attention.spec, keys, values, batch, attention.sinks)

    def rotate_and_store(
        self, qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch
    ) -> Tensor:  # fmt: skip
        """Writes keys and values to the cache. -> queries [T, heads, head_dim]"""
        _, kv_heads, _, head_dim = keys.shape
        heads = attention.spec.num_heads
        q, *own = qkv.view(len(qkv), -1, head_dim).tensor_split((heads, heads + kv_heads), dim=1)  # [T, h, head_dim]
        if attention.q_norm is not None:
            q = self._norm_heads(q, attention.q_norm, attention.eps)
        if attention.query_factors is not None:
            factors = attention.query_factors[batch.positions].view(-1, 1, 1)
            q = (q.to(factors.dtype) * factors).to(q.dtype)
        cos, sin = attention.rotation[batch.positions].unsqueeze(1).chunk(2, dim=-1)  # [T, 1, head_dim / 2]
        if attention.spec.has_own_rows:
            k, v = own
            k = k if attention.k_norm is None else self._norm_heads(k, attention.k_norm, attention.eps)
            self.store(rotate(k, cos, sin), v, keys, values, batch)
        return rotate(q, cos, sin)

    def _norm_heads(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """x [T, h, head_dim]; gain [head_dim], or [h * head_dim] of all heads at once."""
        return self.norm(x.reshape(len(x), -1, len(gain)), Norm(gain, eps)).view(x.shape)

    def store(self, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> None:
        store(k, v, keys, values, batch.slots)

    def attention(
        self, q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, batch: Batch, sinks: Tensor | None = None
    ) -> Tensor:
        """Causal attention of each chunk over its own context. -> [T, heads * head_dim]"""
        if self._exact:
            return exact_attention(q, keys, values, batch, spec, sinks)
        with without_cudnn(q.device):
            return _attend(q, keys, values, batch, spec, sinks).flatten(1)

    def gate(self, x: Tensor, gates: Tensor) -> Tensor:
        return x * sigmoid(gates)

    def gated(self, weight: Weight, x: Tensor, activation: str) -> Tensor:
        return self.activate(weight.linear(x), activation)

    def activated(self, weight: Weight, x: Tensor, activation: str, times: Tensor | None = None) -> Tensor:
        out = self.activate(weight.linear(x), activation, has_gate=False)
        return out if times is None else out * times

    def activate(self, gate_up: Tensor, activation: str, has_gate: bool = True) -> Tensor:
        if self._exact and gate_up.numel() >= UNSPLIT:
            parts = gate_up.split(max(1, (UNSPLIT - 1) // gate_up.shape[1]))
            return torch.cat([_activate(part, activation, has_gate) for part in parts])
        return _activate(gate_up, activation, has_gate)

    def expert_weight(self, matrix: Tensor, bias: Tensor | None = None) -> ExpertWeight:
        return each_weight(self, self.weight, matrix, bias)

    def expert_weights(self, weights: Sequence[Weight]) -> ExpertWeight:
        return EachWeight(tuple(weights))

    def experts(self, x: Tensor, experts: Experts, shared: Tensor | None, seen: Tensor | None = None) -> Tensor:
        spec = experts.rule
        logits = experts.router.logits(x if seen is None else seen)
        # Of few rows at a time: `UNSPLIT` says why.
        rows = max(1, (UNSPLIT - 1) // spec.count) if self._exact else max(1, len(logits))
        chosen = [route(part, spec, experts.correction, experts.factors) for part in logits.split(rows)]
        ids, weights = (torch.cat(each) for each in zip(*chosen, strict=True))
        return mix(x, experts, ids, weights, shared, self.gated)

    def cap(self, logits: Tensor, cap: float) -> Tensor:
        for rows in logits.split(1) if self._exact else (logits,):  # threads split a row as they do alone
            rows.div_(cap).tanh_().mul_(cap)
        return logits

    def argmax(self, logits: Tensor) -> Tensor:
        largest, first = logits.max(dim=-1)  # a NaN is larger than any number
        return first.masked_fill_(largest.isnan(), -1)


def _activate(gate_up: Tensor, activation: str, has_gate: bool) -> Tensor:
    if not has_gate:
        return _ACTIVATE[activation](gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    if activation == "clamped":
        gate = gate.clamp(max=CLAMP)
        return _times_sigmoid(gate, lambda wide: STEEPNESS * wide) * (up.clamp(-CLAMP, CLAMP) + 1.0)
    return _ACTIVATE[activation](gate) * up


def normed(x: Tensor, norm: Norm) -> Tensor:
    wide, shape = x.to(norm.gain.dtype), (x.shape[-1],)
    if norm.is_centred:
        return F.layer_norm(wide, shape, norm.gain, norm.bias, norm.eps).to(x.dtype)
    scaled = F.rms_norm(wide, shape, norm.gain, norm.eps)
    return (scaled if norm.bias is None else scaled + norm.bias).to(x.dtype)


def _gelu(x: Tensor) -> Tensor:
    """By its tanh: torch's own depends on the number of rows."""
    return _times_sigmoid(x, lambda wide: wide * (_GELU + _GELU * 0.044715 * wide * wide))


def _times_sigmoid(x: Tensor, power: Callable[[Tensor], Tensor]) -> Tensor:
    """x * sigmoid(power(x)), of each row alike whatever the number of rows."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * sigmoid(power(wide))).to(x.dtype)


_ACTIVATE: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "gelu_tanh": _gelu}


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, h, head_dim]: turns each pair (x[i], x[i + head_dim / 2]) by its angle."""
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def _attend(
    q: Tensor, keys: Tensor, values: Tensor, batch: Batch, spec: AttentionSpec, sinks: Tensor | None
) -> Tensor:  # fmt: skip
    out = torch.empty_like(q)  # [T, heads, head_dim]
    width = -(-batch.max_context // keys.shape[2])
    group = max(1, MAX_GATHERED // (width * keys[0].numel()))
    for low in range(0, batch.num_decodes, group):
        high = min(low + group, batch.num_decodes)
        out[low:high] = _attend_decodes(q, keys, values, batch, low, high, spec, sinks)
    if batch.num_decodes < len(batch.contexts):
        starts, contexts = batch.starts.tolist(), batch.contexts.tolist()
        for r in range(batch.num_decodes, len(contexts)):
            rows = slice(starts[r], starts[r + 1])
            out[rows] = _attend_chunk(q[rows], keys, values, batch.tables[r], contexts[r], spec, sinks)
    return out


def _attend_decodes(
    q: Tensor, keys: Tensor, values: Tensor, batch: Batch, low: int, high: int, spec: AttentionSpec,
    sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    """Decodes low..high, each one query over its own context, padded to the longest. -> [D, heads, head_dim]"""
    contexts = batch.contexts[low:high, None]  # [D, 1]
    at = torch.arange(int(contexts.max()), device=q.device)
    seen = at < contexts  # [D, L]
    if spec.window:
        seen &= at >= contexts - spec.window
    # Memory beyond a context may hold NaNs, which a mask lets through (0 * NaN): unseen positions repeat the last one.
    positions, tables = torch.where(seen, at, contexts - 1), batch.tables[low:high]
    k, v = gather(keys, positions, tables), gather(values, positions, tables)  # [D, kv_heads, L, head_dim]
    # The heads that share a key head become its query rows.
    grouped = q[low:high].unflatten(1, (keys.shape[1], -1))  # [D, kv_heads, group, head_dim]
    own = None if sinks is None else sinks.view(keys.shape[1], -1, 1)
    return weighted(grouped, k, v, seen[:, None, None], spec, own).flatten(1, 2)


def _attend_chunk(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, context: int, spec: AttentionSpec, sinks: Tensor | None
) -> Tensor:
    """The last len(q) positions of one context. q [n, heads, head_dim] -> [n, heads, head_dim]"""
    count, heads, _ = q.shape
    block_size = keys.shape[2]
    past = context - count
    # Blocks before the window are not read.
    first = max(0, past - spec.window + 1) // block_size if spec.window else 0
    table = table[first : -(-context // block_size)]
    origin = first * block_size
    group = heads // keys.shape[1]
    k = keys[table].transpose(0, 1).flatten(1, 2)[:, : context - origin].repeat_interleave(group, 0)  # [heads, L, d]
    v = values[table].transpose(0, 1).flatten(1, 2)[:, : context - origin].repeat_interleave(group, 0)
    at = torch.arange(origin, context, device=q.device)
    own_sinks = None if sinks is None else sinks[:, None, None]
    pieces = []
    for low in range(0, count, _MAX_QUERIES):
        high = min(low + _MAX_QUERIES, count)
        own = torch.arange(past + low, past + high, device=q.device)[:, None]
        reach = slice(0, past + high - origin)
        seen = at[reach] <= own  # [queries, L]
        if spec.window:
            seen &= at[reach] > own - spec.window
        rows = q[low:high].transpose(0, 1)  # [heads, queries, head_dim]
        out = weighted(rows[None], k[None, :, reach], v[None, :, reach], seen, spec, own_sinks)
        pieces.append(out[0].transpose(0, 1))
    return torch.cat(pieces)
