"""A reference of our own: whole sequences, one at a time, no pages, no batches, no cache, in float32.

Shares nothing with the runner but the files' tensors: norms, rotation, attention and activation are written out from
their definitions. All sequences pass through a layer before the next is read: one layer's weights are held at a time.

Weights are first rounded to the runner's dtype, so that only arithmetic can differ. Letters in shapes: T tokens, E
hidden, H heads, K heads of keys and values, D values per head.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from chairlift.lab.verify.delta_net import delta_net_of
from chairlift.lab.verify.feed_forward import active, feed_forward_of, linear
from chairlift.lab.verify.latent import latent_of
from chairlift.models.mixers.attention import RopeScaling, Rotation
from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.models.mixers.latent import LatentSpec
from chairlift.models.parts import Part
from chairlift.models.spec import LayerSpec, ModelConfig
from chairlift.models.tensors import LayerTensors, TokenTensors, end_tensors, layer_tensors
from chairlift.runner.weights.source import TensorSource, arranged
from chairlift.telemetry.logit_files import Logits

_OF_HEADS = ("q_norm", "k_norm")


def logits_of(
    config: ModelConfig, tensors: TensorSource, dtype: str, device: str, sequences: Sequence[Sequence[int]],
    num_wanted: Sequence[int], watch: Callable[[int, int], None], max_len: int | None = None,
) -> list[list[Logits]]:  # fmt: skip
    """Of each sequence the logits after its last num_wanted[i] tokens, in order. max_len: that is served; None: the
    model's own."""
    rounded = getattr(torch, dtype)
    wide = torch.float64 if rounded is torch.float64 else torch.float32

    def read(part: Part) -> Tensor:
        tensor = arranged(tensors.read(part.name, part.shape), part)
        return tensor.to(device).to(rounded).to(wide, copy=True)  # valid until the next read

    with torch.inference_mode():
        ends = end_tensors(config)
        embedding = read(ends.embedding.parts[0])
        head = embedding if ends.head is None else None
        factor = torch.tensor(config.embedding_factor, dtype=torch.float64).to(rounded).item()
        states = [embedding[torch.tensor(tokens, device=device)] * factor for tokens in sequences]  # [T, E] each
        del embedding
        brought = _brought(config, ends.token, sequences, states, read) if ends.token else None
        kept: list[Kept] = [{} for _ in sequences]
        for index, spec in enumerate(config.layers):
            watch(index, config.num_layers)
            layer = _Layer(config, spec, layer_tensors(config, index), max_len or config.max_model_len, read)
            own = [each[:, index] for each in brought] if brought else [None] * len(states)
            states = [layer.through(*each) for each in zip(states, own, kept, strict=True)]
        norm = _norm_of(ends.norm, ends.norm_bias, config.rms_norm_eps, config.has_centred_norms, read)
        if head is None:
            assert ends.head is not None
            head = read(ends.head.parts[0])
        last = [norm(x[len(x) - n :]) for x, n in zip(states, num_wanted, strict=True)]
        return [list(_capped(config.logit_factor * (x @ head.T), config.logit_cap).cpu().numpy()) for x in last]


Kept = dict[int, tuple[Tensor, Tensor]]  # keys and values of the last layer that has its own, by its window


def _brought(
    config: ModelConfig, tensors: TokenTensors, sequences: Sequence[Sequence[int]], states: Sequence[Tensor],
    read: Callable[[Part], Tensor],
) -> list[Tensor]:  # fmt: skip
    """What tokens bring to layers besides: [T, L, W] of each sequence."""
    width, shape = config.token_width, (-1, config.num_layers, config.token_width)
    table = read(tensors.table.parts[0])
    rows = [table[torch.tensor(tokens, device=table.device)].reshape(shape) for tokens in sequences]
    del table
    project, norm = (
        linear(tensors.projection, read),
        _norm_of(tensors.norm, None, config.rms_norm_eps, config.has_centred_norms, read),
    )
    of_states = [norm((project(x) / math.sqrt(config.hidden_size)).reshape(shape)) for x in states]
    return [(own + math.sqrt(width) * row) / math.sqrt(2) for own, row in zip(of_states, rows, strict=True)]


class _Layer:
    def __init__(
        self, config: ModelConfig, spec: LayerSpec, tensors: LayerTensors, max_len: int,
        read: Callable[[Part], Tensor],
    ) -> None:  # fmt: skip
        self._spec = spec
        self._max_len = max_len
        is_centred = config.has_centred_norms
        expert_norms = {
            role: _norm_of(part, None, config.rms_norm_eps, is_centred, read)
            for role, part in (tensors.experts.norms if tensors.experts else {}).items()
        }
        self._feed_forward = feed_forward_of(spec.feed_forward, tensors, read, expert_norms)
        self._scalar = read(tensors.scalar).item() if tensors.scalar else 1.0
        self._token = [linear(matrix, read) for matrix in (tensors.token_gate, tensors.token_output) if matrix]
        sinks = tensors.mixer.further.get("sinks")
        self._sinks = read(sinks).tolist() if sinks else None
        self._eps = config.rms_norm_eps
        self._norms = {
            role: _norm_of(
                part, tensors.norm_biases.get(role), config.rms_norm_eps, is_centred and role not in _OF_HEADS, read
            )
            for role, part in (tensors.norms | tensors.mixer.norms).items()
        }
        self._mixer: Callable[[Tensor], Tensor] | None = None  # None: attention
        if isinstance(spec.mixer, DeltaNetSpec):
            self._mixer = delta_net_of(spec.mixer, tensors.mixer, self._norms["norm"], read)
            return
        if isinstance(latent := spec.mixer, LatentSpec):
            turned = partial(_turned_by, latent.rotation, latent.turned_dim, max_len)
            self._mixer = latent_of(latent, tensors.mixer, turned, read)
            return
        self._qkv, self._output = linear(tensors.mixer.matrices["qkv"], read), linear(tensors.mixer.output, read)

    def through(self, x: Tensor, brought: Tensor | None, kept: Kept) -> Tensor:
        """x [T, E], brought [T, W] -> [T, E]"""
        same = self._norm("before_attention", x)
        mix, feed_forward = self._mixer or partial(self._attention, kept), self._feed_forward
        for name, branch in (("attention", lambda x, _: mix(x)), ("feed_forward", feed_forward)):
            y = branch(same if self._spec.is_parallel else self._norm(f"before_{name}", x), x)
            x = x + self._spec.residual_factor * self._norm(f"after_{name}", y)
        if brought is not None:
            gate, output = self._token
            product = active(gate(x), self._spec.feed_forward.activation, has_gate=False) * brought
            x = x + self._norm("after_token", output(product))
        return self._scalar * x

    def _norm(self, role: str, x: Tensor) -> Tensor:
        return self._norms[role](x) if role in self._norms else x

    def _norm_heads(self, role: str, heads: Tensor) -> Tensor:
        """[heads, T, D] -> the same, each head by itself or all at once"""
        if not self._spec.attention.has_wide_qk_norm:
            return self._norm(role, heads)
        flat = self._norm(role, heads.transpose(0, 1).flatten(1))
        return flat.reshape(len(flat), len(heads), -1).transpose(0, 1)

    def _attention(self, kept: Kept, x: Tensor) -> Tensor:
        spec, count = self._spec.attention, len(x)
        heads = self._qkv(x).reshape(count, -1, spec.head_dim).transpose(0, 1)  # [H + 2K, T, D], with gates [2H + 2K]
        gates = heads[spec.num_heads :][: spec.num_heads * spec.has_gate]
        q, k = heads[: spec.num_heads], heads[spec.num_heads + len(gates) :][: spec.num_kv_heads]
        v = heads[len(heads) - spec.num_kv_heads :]
        v = v / torch.sqrt((v * v).mean(dim=-1, keepdim=True) + self._eps) if spec.has_value_norm else v
        q = self._norm_heads("q_norm", q)
        k = self._norm_heads("k_norm", k) if spec.has_own_rows else k
        if spec.growth is not None:
            steps = [1 + spec.growth.beta * math.log(1 + p // spec.growth.length) for p in range(count)]
            q = q * torch.tensor(steps, dtype=q.dtype, device=q.device)[:, None]
        if spec.rotation is not None:
            turns = _turns(spec.rotation, spec.head_dim, count, self._max_len).to(x.device)
            q, k = _turned(q, turns), _turned(k, turns) if spec.has_own_rows else k
        if spec.has_own_rows:
            kept[spec.window] = k, v
        k, v = kept[spec.window]
        group = spec.num_heads // spec.num_kv_heads
        own, other = torch.arange(count, device=x.device)[:, None], torch.arange(count, device=x.device)
        is_hidden = other > own
        if spec.window:
            is_hidden |= other <= own - spec.window
        outs = []
        for head in range(spec.num_heads):
            scores = _capped(q[head] @ k[head // group].T * spec.scale, spec.cap).masked_fill(is_hidden, -math.inf)
            top = scores.max(dim=1, keepdim=True).values
            weights = torch.exp(scores - top)
            total = weights.sum(dim=1, keepdim=True)
            if self._sinks is not None:
                total = total + torch.exp(self._sinks[head] - top)
            out = (weights / total) @ v[head // group]
            outs.append(out / (1 + torch.exp(-gates[head])) if spec.has_gate else out)
        return self._output(torch.cat(outs, dim=1))


def _norm_of(
    gain: Part, bias: Part | None, eps: float, is_centred: bool, read: Callable[[Part], Tensor]
) -> Callable[[Tensor], Tensor]:
    weight, shift = read(gain) + gain.offset, None if bias is None else read(bias)

    def norm(x: Tensor) -> Tensor:
        x = x - x.mean(dim=-1, keepdim=True) if is_centred else x
        y = x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps) * weight
        return y if shift is None else y + shift

    return norm


def _capped(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap) if cap else x


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    """x [heads, T, D] as D / 2 complex numbers, the first half real, the second imaginary, each times its turn."""
    half = x.shape[-1] // 2
    wide = x.double()
    turned = torch.complex(wide[..., :half], wide[..., half:]) * turns
    return torch.cat((turned.real, turned.imag), dim=-1).to(x.dtype)


def _turned_by(rotation: Rotation, width: int, max_len: int, x: Tensor) -> Tensor:
    """x [T, D]"""
    return _turned(x[None], _turns(rotation, width, len(x), max_len).to(x.device))[0]


def _turns(rotation: Rotation, head_dim: int, count: int, max_len: int) -> Tensor:
    """complex128 [T, D / 2]"""
    pairs = (rotation.num_turned or head_dim) // 2
    turned = rotation.num_pairs or pairs
    steps = [_frequency(rotation, i, pairs, max_len) if i < turned else 0.0 for i in range(pairs)]
    angles = torch.arange(count, dtype=torch.float64)[:, None] * torch.tensor(steps, dtype=torch.float64)
    length = rotation.scaling.attention_factor if rotation.scaling else 1.0
    still = torch.ones(count, head_dim // 2 - pairs, dtype=torch.complex128)
    return torch.cat((torch.polar(torch.full_like(angles, length), angles), still), dim=1)


def _frequency(rotation: Rotation, pair: int, pairs: int, max_len: int) -> float:
    """Radians per position of a pair."""
    plain: float = rotation.theta ** -(pair / pairs)
    scaling = rotation.scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "longrope":
        return plain / (scaling.short_factors if max_len <= scaling.original_max_len else scaling.long_factors)[pair]
    if scaling.kind == "yarn":
        kept = _kept_by_yarn(rotation.theta, scaling, pair, pairs)
    else:
        assert scaling.kind == "llama3", scaling.kind
        length = 2 * math.pi / plain  # positions that one turn takes
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        kept = min(1.0, max(0.0, (scaling.original_max_len / length - low) / (high - low)))
    return (1 - kept) * plain / scaling.factor + kept * plain


def _kept_by_yarn(theta: float, scaling: RopeScaling, pair: int, pairs: int) -> float:
    """1 up to the pair with beta_fast turns in the original length, 0 from the one with beta_slow turns on."""
    fast, slow = (
        pairs * math.log(scaling.original_max_len / 2 / math.pi / beta, theta)
        for beta in (scaling.beta_fast, scaling.beta_slow)
    )
    if scaling.is_truncated:
        fast, slow = math.floor(fast), math.ceil(slow)
    fast, slow = max(fast, 0), min(slow, 2 * pairs - 1)
    return min(1.0, max(0.0, (slow - pair) / (slow - fast))) if fast != slow else float(pair <= fast)
