"""Declarations drawn at random, whose layers differ in all that layers may differ in, and tensors for them."""

import random
import zlib
from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec, QueryGrowth, RopeScaling, Rotation
from chairlift.models.spec import ACTIVATIONS, SCORES, ExpertsSpec, FeedForwardSpec, LayerSpec, ModelConfig, Names

VOCAB, MAX_LEN = 61, 48
_HEADS = [(4, 4), (4, 2), (6, 1), (3, 3)]  # of queries, of keys and values
_SCALINGS = [
    None, RopeScaling(kind="linear", factor=4.0), RopeScaling(kind="llama3", factor=8.0, original_max_len=32),
]  # fmt: skip


_HEAD_DIMS = (8, 16, 24)


def random_declaration(seed: int, head_dims: tuple[int, ...] = _HEAD_DIMS) -> ModelConfig:
    """All that layers may have."""
    plain, rng = plain_declaration(seed, head_dims), random.Random(1000 + seed)
    wide = replace(
        plain,
        layers=tuple(_widened(layer, rng) for layer in plain.layers),
        logit_factor=rng.choice([1.0, 0.125, 0.3]),
        has_centred_norms=rng.random() < 0.3,
        has_norm_biases=rng.random() < 0.3,
        names=replace(plain.names, has_paired_rows=rng.random() < 0.4),
    )
    rng = random.Random(2000 + seed)
    is_gated = all(layer.feed_forward.activation != "clamped" for layer in wide.layers)
    return replace(wide, layers=_shared(wide, rng), token_width=rng.choice([0, 8]) if is_gated else 0)


def _shared(config: ModelConfig, rng: random.Random) -> tuple[LayerSpec, ...]:
    """Layers with factors, values that are normalised or keys, and the last with another's keys and values."""
    layers = [replace(layer, has_scalar=rng.random() < 0.3) for layer in config.layers]
    for index, layer in enumerate(layers):
        attention = replace(layer.attention, has_value_norm=rng.random() < 0.3)
        is_in_order = not config.names.has_paired_rows and not (attention.rotation and attention.rotation.num_turned)
        if is_in_order and rng.random() < 0.4:
            attention = replace(attention, has_keys_as_values=True)
        layers[index] = replace(layer, mixer=attention)
        if is_in_order and not attention.has_wide_qk_norm and rng.random() < 0.5:
            layers.append(replace(layers[index], mixer=replace(attention, has_own_rows=False)))
            break
    return tuple(layers)


def _widened(layer: LayerSpec, rng: random.Random) -> LayerSpec:
    rotation = layer.attention.rotation and _rotation(layer.attention.rotation, layer.attention.head_dim, rng)
    has_wide_norm = rng.random() < 0.3
    attention = replace(
        layer.attention,
        rotation=rotation,
        has_output_bias=rng.random() < 0.3,
        has_qk_norm=layer.attention.has_qk_norm and not has_wide_norm,
        has_wide_qk_norm=has_wide_norm,
        has_sinks=rng.random() < 0.3,
        growth=rng.choice([None, None, QueryGrowth(beta=0.4, length=7)]),
    )
    is_parallel = layer.has_norm_before and rng.random() < 0.4
    feed_forward = replace(layer.feed_forward, has_gate=rng.random() < 0.7, has_bias=rng.random() < 0.3)
    if feed_forward.has_gate:
        activation = rng.choice([feed_forward.activation, "clamped"])
        feed_forward = replace(feed_forward, activation=activation, experts=rng.choice([None, _experts(rng)]))
    return replace(layer, mixer=attention, feed_forward=feed_forward, is_parallel=is_parallel)


def _rotation(plain: Rotation, head_dim: int, rng: random.Random) -> Rotation:
    num_turned = rng.choice([0, 0, head_dim // 2, head_dim - 2])
    pairs = (num_turned or head_dim) // 2
    yarn = RopeScaling(
        kind="yarn", factor=4.0, original_max_len=16, beta_fast=3.0, beta_slow=0.2, is_truncated=rng.random() < 0.5,
        attention_factor=1.14,
    )  # fmt: skip
    longrope = RopeScaling(
        kind="longrope", original_max_len=rng.choice([MAX_LEN - 1, MAX_LEN]), attention_factor=1.2,
        short_factors=tuple(1 + i / 9 for i in range(pairs)), long_factors=tuple(1 + i for i in range(pairs)),
    )  # fmt: skip
    scaling, num_pairs = rng.choice([plain.scaling, plain.scaling, yarn, longrope]), rng.choice([0, 0, 2])
    return replace(plain, scaling=scaling, num_turned=num_turned, num_pairs=num_pairs)


def plain_declaration(seed: int, head_dims: tuple[int, ...] = _HEAD_DIMS) -> ModelConfig:
    """What every device computes, MindSpore's too."""
    rng = random.Random(seed)
    is_fused = rng.random() < 0.3
    names = Names(
        qkv=("attention.qkv",) if is_fused else ("attention.q", "attention.k", "attention.v"),
        gate_up=("inner.gate_up",) if is_fused else ("inner.gate", "inner.up"),
        expert_gate_up=("experts.gate_up",) if is_fused else ("experts.{}.gate", "experts.{}.up"),
        expert_down="experts.down" if is_fused else "experts.{}.down",
        before_attention="norm.1", after_attention="norm.2", before_feed_forward="norm.3", after_feed_forward="norm.4",
        has_paired_rows=not is_fused and rng.random() < 0.3,
        norm_offset=rng.choice([0.0, 1.0]),
        qk_norm_offset=rng.choice([None, 0.0, 1.0]),
    )  # fmt: skip
    return ModelConfig(
        architecture="DrawnForCausalLM",
        hidden_size=rng.choice([32, 48]),
        vocab_size=VOCAB,
        max_model_len=MAX_LEN,
        layers=tuple(_layer(rng, head_dims) for _ in range(rng.choice([1, 2, 3]))),
        rms_norm_eps=rng.choice([1e-6, 1e-5]),
        embedding_factor=rng.choice([1.0, 5.6569, 12.0]),
        logit_cap=rng.choice([0.0, 3.0]),
        is_tied=rng.random() < 0.5,
        names=names,
    )


def _layer(rng: random.Random, head_dims: tuple[int, ...]) -> LayerSpec:
    heads, kv_heads = rng.choice(_HEADS)
    head_dim = rng.choice(head_dims)
    rotation = Rotation(theta=rng.choice([100.0, 1e4]), scaling=rng.choice(_SCALINGS))
    attention = AttentionSpec(
        num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, scale=rng.choice([head_dim**-0.5, 0.3]),
        rotation=rng.choice([rotation, rotation, None]), window=rng.choice([0, 0, 1, 7]), cap=rng.choice([0.0, 0.8]),
        has_bias=rng.random() < 0.5, has_qk_norm=rng.random() < 0.5,
    )  # fmt: skip
    has_norm_before = rng.random() < 0.7
    return LayerSpec(
        mixer=attention,
        feed_forward=FeedForwardSpec(width=rng.choice([40, 64]), activation=rng.choice(ACTIVATIONS[:2])),
        has_norm_before=has_norm_before,
        has_norm_after=not has_norm_before or rng.random() < 0.3,
        residual_factor=rng.choice([1.0, 0.22]),
    )


def _experts(rng: random.Random) -> ExpertsSpec:
    groups, chosen_groups = rng.choice([(1, 1), (3, 2)])
    mixture = ExpertsSpec(
        count=6, num_chosen=rng.choice([1, 2, 4]), scores=rng.choice(SCORES), is_normalised=rng.random() < 0.5,
        factor=rng.choice([1.0, 2.5]), has_correction=rng.random() < 0.5, num_groups=groups,
        num_chosen_groups=chosen_groups, shared_width=rng.choice([0, 24]), has_router_bias=rng.random() < 0.5,
        has_bias=rng.random() < 0.5, has_factors=rng.random() < 0.5, has_norms=rng.random() < 0.5,
    )  # fmt: skip
    return replace(mixture, has_shared_gate=mixture.shared_width > 0 and rng.random() < 0.5)


class DrawnTensors:
    """Large enough that every part matters: gains differ from line to line, and so do biases."""

    @property
    def names(self) -> Collection[str]:
        return ()

    def file_of(self, name: str) -> str:
        return "drawn tensors"

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        source = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return torch.randn(shape, generator=source, dtype=torch.float64) * (0.3 if len(shape) == 1 else 0.25)
