"""The decoder in MindSpore's operations: walks the layers of a declared model whose matrices are `MindSporeWeight`s.

A step crosses from torch once, as indices and rows of the embedding, and back once, as the head's inputs; the head's
product crosses in the same way. Knows batches, nothing of requests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.mindspore.kv_cache import MindSporeCache
from chairlift.runner.mindspore.layer import make_after, make_before, rms_norm
from chairlift.runner.mindspore.weight import MindSporeWeight, to_mindspore, to_torch
from chairlift.runner.model import Decoder, Layer, OnLayer, nothing
from chairlift.runner.ops import Attention, Batch, Norm


class PagedAttention(Protocol):
    """Attention of layers with such heads, on one kind of device."""

    stored: tuple[int, ...]  # the shape that it takes keys and values in, -1 for its first length

    def shape(self, num_blocks: int) -> tuple[int, ...]:
        """Of a layer's keys, and of its values."""

    def layout(self, batch: Batch) -> Any:
        """Where a step's keys and values go, and what its queries see."""

    def attend(self, q: Any, k: Any, v: Any, keys: Any, values: Any, layout: Any) -> Any:
        """Writes k and v, as `stored`, to keys and values, and attends each chunk's queries to its own context.
        q [T, heads * head_dim] -> the same shape"""


@dataclass(frozen=True, slots=True)
class _Walked:
    """A layer with its functions and its tensors, in their order."""

    heads: AttentionSpec
    rotation: Tensor
    before: Any
    before_tensors: tuple[Any, ...]
    after: Any
    after_tensors: tuple[Any, ...]


class MindSporeDecoder:
    def __init__(
        self, decoder: Decoder, block_size: int, attention: Callable[[AttentionSpec, int], PagedAttention]
    ) -> None:
        self.config, self.ops, self.logits = decoder.config, decoder.ops, decoder.logits
        self._decoder, self._block_size = decoder, block_size
        eps = decoder.config.rms_norm_eps
        kinds = {layer.spec.attention for layer in decoder.layers}
        self._attention = {spec: attention(spec, block_size) for spec in kinds}
        before = cache(lambda spec: make_before(spec, eps, self._attention[spec.attention].stored))
        after = cache(lambda spec: make_after(spec, eps))
        self._layers = [
            _Walked(
                layer.spec.attention, _attention(layer).rotation, before(layer.spec), _before_tensors(layer),
                after(layer.spec), _after_tensors(layer),
            )
            for layer in decoder.layers
        ]  # fmt: skip
        self._norm = to_mindspore(decoder.norm.gain)

    def new_cache(self, num_blocks: int, num_host_blocks: int = 0) -> MindSporeCache:
        shapes = [self._attention[layer.heads].shape(num_blocks) for layer in self._layers]
        dtype = str(self._decoder.dtype).removeprefix("torch.")
        return MindSporeCache(shapes, num_blocks, self._block_size, dtype, num_host_blocks)

    def hidden(self, batch: Batch, kv: MindSporeCache, on_layer: OnLayer = nothing) -> Tensor:
        decoder = self._decoder
        layouts = {spec: attention.layout(batch) for spec, attention in self._attention.items()}
        turns = cache(lambda rotation: _turns(rotation, batch.positions))
        residual = to_mindspore(decoder.embedding.rows(batch.tokens) * decoder.embedding_factor)
        for layer, keys, values in zip(self._layers, kv.keys, kv.values, strict=True):
            on_layer()
            q, k, v = layer.before(residual, *layer.before_tensors, *turns(layer.rotation))
            attended = self._attention[layer.heads].attend(q, k, v, keys, values, layouts[layer.heads])
            residual = layer.after(residual, attended, *layer.after_tensors)
        hidden = to_torch(rms_norm(residual, self._norm, self.config.rms_norm_eps))
        return hidden if batch.logit_rows is None else hidden[batch.logit_rows]


def _before_tensors(layer: Layer) -> tuple[Any, ...]:
    qkv, attention = layer.weights["qkv"], _attention(layer)
    assert isinstance(qkv, MindSporeWeight)
    return _gain(layer.before_attention), qkv.matrix, qkv.bias, *map(_put, (attention.q_norm, attention.k_norm))


def _attention(layer: Layer) -> Attention:
    assert isinstance(layer.mixer, Attention)  # `check_fits` refuses others
    return layer.mixer


def _after_tensors(layer: Layer) -> tuple[Any, ...]:
    output, gate_up, down = layer.output, layer.gate_up, layer.down
    assert isinstance(output, MindSporeWeight)
    assert isinstance(gate_up, MindSporeWeight)
    assert isinstance(down, MindSporeWeight)
    norms = layer.after_attention, layer.before_feed_forward
    return output.matrix, *map(_gain, norms), gate_up.matrix, down.matrix, _gain(layer.after_feed_forward)


def _gain(norm: Norm | None) -> Any:
    return None if norm is None else to_mindspore(norm.gain)


def _put(gain: Tensor | None) -> Any:
    return None if gain is None else to_mindspore(gain)


def _turns(rotation: Tensor, positions: Tensor) -> tuple[Any, Any]:
    """Cosines and sines [T, 1, head_dim / 2] of the step's positions."""
    cos, sin = rotation[positions].unsqueeze(1).chunk(2, dim=-1)
    return to_mindspore(cos), to_mindspore(sin)
