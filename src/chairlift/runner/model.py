"""The decoder: one description for Llama, Mistral, SmolLM2, Qwen2 and Qwen3, driven by its configuration.

Letters in shapes: T tokens of a step, S of them wanted as logits, E hidden, F inner width of the MLP, H heads, K heads
of keys and values, D values per head. Knows nothing of requests, devices or files: it speaks in `Ops`.

    tokens -> rows of the embedding -> [ norm, attention, +, norm, MLP, + ] x layers -> norm -> head -> logits
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from chairlift.config.model import ModelConfig
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.ops import Batch, Ops, Weight

OnLayer = Callable[[], None]  # told of each layer before it is computed


def nothing() -> None:
    """Where nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Layer:
    attention_norm: Tensor  # [E]
    qkv: Weight  # [(H + 2K) * D, E]: rows of q, then k, then v; with a bias in Qwen2
    q_norm: Tensor | None  # [D], Qwen3
    k_norm: Tensor | None  # [D]
    output: Weight  # [E, H * D]
    mlp_norm: Tensor  # [E]
    gate_up: Weight  # [2F, E]: rows of the gate, then of the up projection
    down: Weight  # [E, F]


@dataclass(frozen=True, slots=True)
class Decoder:
    config: ModelConfig
    ops: Ops
    embedding: Weight  # [vocab, E]
    layers: tuple[Layer, ...]
    norm: Tensor  # [E]
    head: Weight  # [vocab, E]; the embedding itself when tied
    rotation: Tensor  # [max_len, D]

    def forward(self, batch: Batch, kv: KvCache) -> Tensor:
        """Writes the keys and values of every token and returns the logits of the wanted rows. -> [S, vocab]"""
        return self.logits(self.hidden(batch, kv)[batch.logit_rows])

    def hidden(self, batch: Batch, kv: KvCache, on_layer: OnLayer = nothing) -> Tensor:
        """What the head reads, of every token. -> [T, E]"""
        # Not by a name here: that would keep the rows while the layers run, beside all that those need.
        return self.through_layers(self.embedding.rows(batch.tokens), None, batch, kv, on_layer)

    def through_layers(
        self, x: Tensor, residual: Tensor | None, batch: Batch, kv: KvCache, on_layer: OnLayer = nothing
    ) -> Tensor:
        """From the rows of the embedding [T, E] and zeros (None: made here) to what the head reads; overwrites both."""
        ops, eps = self.ops, self.config.rms_norm_eps
        residual = torch.zeros_like(x) if residual is None else residual
        for index, layer in enumerate(self.layers):
            on_layer()
            x, residual = ops.add_rms_norm(x, residual, layer.attention_norm, eps)
            x = self.attend(layer, x, kv.keys[index], kv.values[index], batch)
            x, residual = ops.add_rms_norm(x, residual, layer.mlp_norm, eps)
            x = self.feed_forward(layer, x)
        x, _ = ops.add_rms_norm(x, residual, self.norm, eps)
        return x

    def attend(self, layer: Layer, x: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        config, ops = self.config, self.ops
        qkv = layer.qkv.linear(x)  # [T, (H + 2K) * D]
        q = ops.rotate_and_store(
            qkv, self.rotation, keys, values, batch, config.num_heads, layer.q_norm, layer.k_norm, config.rms_norm_eps
        )  # [T, H, D]; k and v are in the cache now
        x = ops.attention(q, keys, values, batch, config.head_dim**-0.5, config.sliding_window)  # [T, H * D]
        return layer.output.linear(x)

    def feed_forward(self, layer: Layer, x: Tensor) -> Tensor:
        return layer.down.linear(self.ops.silu_mul(layer.gate_up.linear(x)))  # [T, 2F] -> [T, F] -> [T, E]

    def logits(self, hidden: Tensor) -> Tensor:
        """[S, E] -> [S, vocab], in float32 at least."""
        return self.head.logits(hidden)
