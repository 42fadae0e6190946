"""A reference of our own: whole sequences, one at a time, no pages, no batches, no cache, in float32.

It shares nothing with the runner but the files' tensors: norms, rotation, attention and activation are written out from
their definitions, so that a mistake in the runner's operations cannot be here too. It goes through a model layer by
layer, all sequences through one before the next is read, and never holds more than one layer's weights.

Weights are rounded to what the runner keeps them in first: what is left to differ is arithmetic. Letters in shapes: T
tokens, E hidden, H heads, K heads of keys and values, D values per head.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from chairlift.config.model import ModelConfig
from chairlift.runner.weights.source import TensorSource
from chairlift.verify.answer import Row


def logits_of(
    config: ModelConfig, tensors: TensorSource, dtype: str, device: str, sequences: Sequence[Sequence[int]],
    num_wanted: Sequence[int], watch: Callable[[int, int], None],
) -> list[list[Row]]:  # fmt: skip
    """Of each sequence the logits after its last num_wanted[i] tokens, in order."""
    rounded = getattr(torch, dtype)
    wide = torch.float64 if rounded is torch.float64 else torch.float32

    def read(name: str, *shape: int) -> Tensor:
        return tensors.read(name, shape).to(device).to(rounded).to(wide, copy=True)  # it is good until the next is read

    with torch.inference_mode():
        embedding = read("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        states = [embedding[torch.tensor(tokens, device=device)] for tokens in sequences]  # [T, E] each
        head = embedding if config.is_tied else None
        del embedding
        for index in range(config.num_layers):
            watch(index, config.num_layers)
            layer = _Layer(config, index, read)
            states = [layer.through(x) for x in states]
        gain = read("model.norm.weight", config.hidden_size)
        if head is None:
            head = read("lm_head.weight", config.vocab_size, config.hidden_size)
        ends = [_normed(x[len(x) - n :], gain, config.rms_norm_eps) for x, n in zip(states, num_wanted, strict=True)]
        return [list((x @ head.T).cpu().numpy()) for x in ends]


class _Layer:
    def __init__(self, config: ModelConfig, index: int, read: Callable[..., Tensor]) -> None:
        self._config = config
        hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
        rows = {"q": config.num_heads * size, "k": config.num_kv_heads * size, "v": config.num_kv_heads * size}
        place = f"model.layers.{index}"
        self._weights = {p: read(f"{place}.self_attn.{p}_proj.weight", n, hidden) for p, n in rows.items()}
        biases = rows if config.has_qkv_bias else {}
        self._biases = {p: read(f"{place}.self_attn.{p}_proj.bias", n) for p, n in biases.items()}
        normed = "qk" if config.has_qk_norm else ""
        self._gains = {p: read(f"{place}.self_attn.{p}_norm.weight", size) for p in normed}
        self._output = read(f"{place}.self_attn.o_proj.weight", hidden, rows["q"])
        self._before = read(f"{place}.input_layernorm.weight", hidden)
        self._between = read(f"{place}.post_attention_layernorm.weight", hidden)
        self._gate = read(f"{place}.mlp.gate_proj.weight", inner, hidden)
        self._up = read(f"{place}.mlp.up_proj.weight", inner, hidden)
        self._down = read(f"{place}.mlp.down_proj.weight", hidden, inner)

    def through(self, x: Tensor) -> Tensor:
        """[T, E] -> [T, E]"""
        eps = self._config.rms_norm_eps
        x = x + self._attention(_normed(x, self._before, eps))
        y = _normed(x, self._between, eps)
        gate = y @ self._gate.T
        return x + (gate / (1.0 + torch.exp(-gate)) * (y @ self._up.T)) @ self._down.T

    def _attention(self, x: Tensor) -> Tensor:
        config, count = self._config, len(x)
        q, k, v = (self._heads(part, x) for part in "qkv")  # [H or K, T, D]
        angles = _angles(config, count).to(x.device)
        q, k = _turned(q, angles), _turned(k, angles)
        group = config.num_heads // config.num_kv_heads
        own, other = torch.arange(count, device=x.device)[:, None], torch.arange(count, device=x.device)
        is_hidden = other > own
        if config.sliding_window:
            is_hidden |= other <= own - config.sliding_window
        outs = []
        for head in range(config.num_heads):
            scores = q[head] @ k[head // group].T / math.sqrt(config.head_dim)
            scores = scores.masked_fill(is_hidden, -math.inf)
            weights = torch.exp(scores - scores.max(dim=1, keepdim=True).values)
            outs.append((weights / weights.sum(dim=1, keepdim=True)) @ v[head // group])
        return torch.cat(outs, dim=1) @ self._output.T

    def _heads(self, part: str, x: Tensor) -> Tensor:
        y = x @ self._weights[part].T
        if part in self._biases:
            y = y + self._biases[part]
        y = y.reshape(len(x), -1, self._config.head_dim)
        if part in self._gains:
            y = _normed(y, self._gains[part], self._config.rms_norm_eps)
        return y.transpose(0, 1)


def _normed(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps) * gain


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    """x [heads, T, D] as D / 2 complex numbers, the first half real, the second imaginary, each turned by its angle."""
    half = x.shape[-1] // 2
    wide = x.double()
    turned = torch.complex(wide[..., :half], wide[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), dim=-1).to(x.dtype)


def _angles(config: ModelConfig, count: int) -> Tensor:
    """float64 [T, D / 2]"""
    steps = torch.tensor([_frequency(config, 2 * i) for i in range(config.head_dim // 2)], dtype=torch.float64)
    return torch.arange(count, dtype=torch.float64)[:, None] * steps


def _frequency(config: ModelConfig, place: int) -> float:
    """Radians per position of the pair that begins at this value of a head."""
    plain: float = config.rope_theta ** (-place / config.head_dim)
    scaling = config.rope_scaling
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
    share = (scaling.original_max_len / length - low) / (high - low)
    return (1 - share) * plain / scaling.factor + share * plain
