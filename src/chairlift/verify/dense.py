"""A reference of our own: whole sequences, one at a time, no pages, no batches, no cache, in float32.

Shares nothing with the runner but the files' tensors: norms, rotation, attention and activation are written out from
their definitions. All sequences pass through a layer before the next is read: one layer's weights are held at a time.

Weights are first rounded to the runner's dtype, so that only arithmetic can differ. Letters in shapes: T tokens, E
hidden, H heads, K heads of keys and values, D values per head.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from chairlift.config.model import LayerSpec, ModelConfig, Rotation
from chairlift.config.tensors import LayerTensors, Part, end_tensors, layer_tensors
from chairlift.runner.weights.assemble import in_order
from chairlift.runner.weights.source import TensorSource
from chairlift.telemetry.logit_files import Logits
from chairlift.verify.mixture import Mixture, fed_forward


def logits_of(
    config: ModelConfig, tensors: TensorSource, dtype: str, device: str, sequences: Sequence[Sequence[int]],
    num_wanted: Sequence[int], watch: Callable[[int, int], None],
) -> list[list[Logits]]:  # fmt: skip
    """Of each sequence the logits after its last num_wanted[i] tokens, in order."""
    rounded = getattr(torch, dtype)
    wide = torch.float64 if rounded is torch.float64 else torch.float32

    def read(part: Part) -> Tensor:
        tensor = in_order(tensors.read(part.name, part.shape), part.paired_heads)
        return tensor.to(device).to(rounded).to(wide, copy=True)  # valid until the next read

    with torch.inference_mode():
        ends = end_tensors(config)
        embedding = read(ends.embedding.parts[0])
        head = embedding if ends.head is None else None
        factor = torch.tensor(config.embedding_factor, dtype=torch.float64).to(rounded).item()
        states = [embedding[torch.tensor(tokens, device=device)] * factor for tokens in sequences]  # [T, E] each
        del embedding
        for index, spec in enumerate(config.layers):
            watch(index, config.num_layers)
            layer = _Layer(spec, layer_tensors(config, index), config.rms_norm_eps, read)
            states = [layer.through(x) for x in states]
        gain = read(ends.norm) + ends.norm.offset
        if head is None:
            assert ends.head is not None
            head = read(ends.head.parts[0])
        last = [_normed(x[len(x) - n :], gain, config.rms_norm_eps) for x, n in zip(states, num_wanted, strict=True)]
        return [list(_capped(x @ head.T, config.logit_cap).cpu().numpy()) for x in last]


class _Layer:
    def __init__(self, spec: LayerSpec, tensors: LayerTensors, eps: float, read: Callable[[Part], Tensor]) -> None:
        self._spec = spec
        self._eps = eps
        self._qkv, self._output, self._gate_up, self._down = (
            torch.cat([read(part) for part in matrix.parts]) if matrix else None
            for matrix in (tensors.qkv, tensors.output, tensors.gate_up, tensors.down)
        )
        self._experts = Mixture(spec.feed_forward, tensors.experts, read) if tensors.experts else None
        self._bias = torch.cat([read(part) for part in tensors.qkv.bias]) if tensors.qkv.bias else None
        self._gains = {role: read(part) + part.offset for role, part in tensors.norms.items()}

    def through(self, x: Tensor) -> Tensor:
        """[T, E] -> [T, E]"""
        for name, branch in (("attention", self._attention), ("feed_forward", self._feed_forward)):
            y = self._norm(f"after_{name}", branch(self._norm(f"before_{name}", x)))
            x = x + self._spec.residual_factor * y
        return x

    def _norm(self, role: str, x: Tensor) -> Tensor:
        return _normed(x, self._gains[role], self._eps) if role in self._gains else x

    def _feed_forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x) if self._experts is None else self._experts.through(x)
        if self._gate_up is not None and self._down is not None:
            y = y + fed_forward(x, self._gate_up, self._down, self._spec.feed_forward.activation)
        return y

    def _attention(self, x: Tensor) -> Tensor:
        spec, count = self._spec.attention, len(x)
        assert self._qkv is not None and self._output is not None
        qkv = x @ self._qkv.T if self._bias is None else x @ self._qkv.T + self._bias
        heads = qkv.reshape(count, -1, spec.head_dim).transpose(0, 1)  # [H + 2K, T, D]
        q, k, v = torch.split(heads, [spec.num_heads, spec.num_kv_heads, spec.num_kv_heads])
        q, k = self._norm("q_norm", q), self._norm("k_norm", k)
        if spec.rotation is not None:
            angles = _angles(spec.rotation, spec.head_dim, count).to(x.device)
            q, k = _turned(q, angles), _turned(k, angles)
        group = spec.num_heads // spec.num_kv_heads
        own, other = torch.arange(count, device=x.device)[:, None], torch.arange(count, device=x.device)
        is_hidden = other > own
        if spec.window:
            is_hidden |= other <= own - spec.window
        outs = []
        for head in range(spec.num_heads):
            scores = _capped(q[head] @ k[head // group].T * spec.scale, spec.cap).masked_fill(is_hidden, -math.inf)
            weights = torch.exp(scores - scores.max(dim=1, keepdim=True).values)
            outs.append((weights / weights.sum(dim=1, keepdim=True)) @ v[head // group])
        return torch.cat(outs, dim=1) @ self._output.T


def _normed(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps) * gain


def _capped(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap) if cap else x


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    """x [heads, T, D] as D / 2 complex numbers, the first half real, the second imaginary, each turned by its angle."""
    half = x.shape[-1] // 2
    wide = x.double()
    turned = torch.complex(wide[..., :half], wide[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), dim=-1).to(x.dtype)


def _angles(rotation: Rotation, head_dim: int, count: int) -> Tensor:
    """float64 [T, D / 2]"""
    steps = torch.tensor([_frequency(rotation, 2 * i / head_dim) for i in range(head_dim // 2)], dtype=torch.float64)
    return torch.arange(count, dtype=torch.float64)[:, None] * steps


def _frequency(rotation: Rotation, share: float) -> float:
    """Radians per position of the pair that begins after this share of a head."""
    plain: float = rotation.theta**-share
    scaling = rotation.scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    assert scaling.kind == "llama3", scaling.kind
    length = 2 * math.pi / plain  # positions that one turn takes
    if length < scaling.original_max_len / scaling.high_freq_factor:
        return plain
    if length > scaling.original_max_len / scaling.low_freq_factor:
        return plain / scaling.factor
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = (scaling.original_max_len / length - low) / (high - low)
    return (1 - kept) * plain / scaling.factor + kept * plain
