"""A model description from the metadata of a GGUF file.

Always: what the model code does not have (other architectures, partial rotation, YaRN) is refused by name.
Reads no tensor data except the rotary factors, which stand for Llama-3 scaling in this format.
"""

import math
import struct
from collections import Counter
from functools import partial

from chairlift.config.families.known import BY_GGUF
from chairlift.config.families.reading import read_sampling
from chairlift.config.fields import MAX_LAYERS, Fields
from chairlift.config.gguf.header import GgufHeader, TensorInfo
from chairlift.config.model import BlockWeights, ModelConfig, RopeScaling, uniform_model
from chairlift.config.tensors import GGUF_NAMES
from chairlift.core.errors import InvalidConfig

_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
# Quantised weights have no type to compute in; this one has the range of float32 at half its size.
_QUANTISED = "bfloat16"
# What the native kernels multiply by as it is.
KEPT_TYPES = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})


def load_gguf(header: GgufHeader) -> ModelConfig:
    everything = Fields(str(header.path), header.metadata)
    name = header.metadata.get("general.architecture")
    family = BY_GGUF.get(name) if isinstance(name, str) else None
    if family is None:
        raise InvalidConfig(
            f"{header.path}: general.architecture {name!r} is not supported; supported: {', '.join(BY_GGUF)}"
        )
    prefix = f"{name}."
    model = Fields(
        f"{header.path}: {name}",
        {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)},
    )
    _refuse_unsupported(header, model)
    hidden, heads = model.size("embedding_length"), model.size("attention.head_count")
    head_dim = model.size("attention.key_length", hidden // heads or None)
    kv_heads = model.size("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise model.bad("attention.head_count_kv", f"must divide attention.head_count {heads}")
    if head_dim % 2:
        raise model.bad("attention.key_length", "must be even")
    for key in ("attention.value_length", "rope.dimension_count"):
        if model.size(key, head_dim) != head_dim:
            raise model.bad(key, f"must equal the head size {head_dim}")
    theta = model.positive("rope.freq_base", 10000.0)
    eos = [everything.token_ids(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")]
    config = uniform_model(
        architecture=family.architecture,
        hidden_size=hidden,
        num_layers=model.size("block_count", most=MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=model.size("feed_forward_length"),
        vocab_size=_vocab_size(header, hidden),
        max_model_len=model.size("context_length"),
        rms_norm_eps=model.positive("attention.layer_norm_rms_epsilon"),
        rope_theta=theta,
        rope_scaling=_rope_scaling(header, model, theta, head_dim),
        is_tied="output.weight" not in header.tensors,
        has_qkv_bias="blk.0.attn_q.bias" in header.tensors,
        has_qk_norm="blk.0.attn_q_norm.weight" in header.tensors,
        sliding_window=int(model.number("attention.sliding_window", 0, most=2**31)),
        dtype=_dtype(header),
        blocks=_blocks(header),
        bos_id=everything.token_id("tokenizer.ggml.bos_token_id"),
        eos_ids=tuple(dict.fromkeys(token for ids in eos for token in ids)),
        sampling=read_sampling(everything, "general.sampling.{}", temperature="temp", penalty="penalty_repeat"),
        names=GGUF_NAMES,
    )
    config = family.from_gguf(model, config)
    if model.number("expert_count", 0) and not any(layer.feed_forward.experts for layer in config.layers):
        raise model.bad("expert_count", f"is not supported in {family.architecture}")
    return config


def _refuse_unsupported(header: GgufHeader, model: Fields) -> None:
    for name in ("blk.0.attn_output.bias", "blk.0.ffn_gate.bias"):
        if name in header.tensors:
            raise InvalidConfig(f"{header.path}: tensor {name} is not supported")
    if header.metadata.get("split.count", 1) != 1:
        raise InvalidConfig(f"{header.path}: one part of a split GGUF; merge the parts into one file first")


def _vocab_size(header: GgufHeader, hidden: int) -> int:
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise InvalidConfig(f"{header.path}: tensor token_embd.weight is missing")
    if len(embedding.shape) != 2 or embedding.shape[0] != hidden or embedding.shape[1] < 1:
        raise InvalidConfig(f"{header.path}: token_embd.weight has shape {embedding.shape}, not ({hidden}, rows)")
    return embedding.shape[1]


def _dtype(header: GgufHeader) -> str:
    """The type most of the matrices are stored in."""
    kinds = Counter(tensor.type_name for tensor in header.tensors.values() if len(tensor.shape) > 1)
    return _FLOATS.get(kinds.most_common(1)[0][0], _QUANTISED)


def _blocks(header: GgufHeader) -> BlockWeights | None:
    kept = [t for t in header.tensors.values() if len(t.shape) > 1 and t.type_name in KEPT_TYPES]
    if not kept:
        return None
    return BlockWeights(
        type_name=Counter(tensor.type_name for tensor in kept).most_common(1)[0][0],
        num_bytes=sum(tensor.num_bytes or 0 for tensor in kept),
        num_weights=sum(math.prod(tensor.shape) for tensor in kept),
    )


def _rope_scaling(header: GgufHeader, model: Fields, theta: float, head_dim: int) -> RopeScaling | None:
    kind = model.values.get("rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise InvalidConfig(f"{model.origin}.rope.scaling.type {kind!r} is not supported; supported: none, linear")
    baked = _llama3_scaling(header, theta, head_dim)
    factor = model.number("rope.scaling.factor", model.number("rope.scale_linear", 1.0, least=1.0), least=1.0)
    if kind == "none" or factor == 1.0:
        return baked
    if baked is not None:
        raise InvalidConfig(f"{header.path}: linear rope scaling together with rope_freqs.weight is not supported")
    return RopeScaling(kind="linear", factor=factor)


def _llama3_scaling(header: GgufHeader, theta: float, head_dim: int) -> RopeScaling | None:
    """The Llama-3 scaling, if its frequency divisors are stored as rope_freqs.weight."""
    tensor = header.tensors.get("rope_freqs.weight")
    if tensor is None:
        return None
    if tensor.type_name != "F32" or tensor.shape != (head_dim // 2,):
        raise InvalidConfig(f"{header.path}: rope_freqs.weight must be {head_dim // 2} values of F32")
    divisors = _read_floats(header, tensor)
    if all(divisor == 1.0 for divisor in divisors):
        return None
    # The file keeps only the divisors. Llama 3.1, 3.2 and 3.3 differ in the factor alone, which is the largest one.
    scaling = RopeScaling(kind="llama3", factor=max(divisors))
    is_sane = min(divisors) > 0.99 and max(divisors) < 1e6  # from 1, but for rounding
    expected = _llama3_divisors(scaling, theta, head_dim) if is_sane else []
    if not is_sane or not all(map(partial(math.isclose, rel_tol=1e-3), divisors, expected)):
        raise InvalidConfig(f"{header.path}: rope_freqs.weight is not the Llama-3 scaling; others are not supported")
    return scaling


def _read_floats(header: GgufHeader, tensor: TensorInfo) -> tuple[float, ...]:
    with header.path.open("rb") as file:
        file.seek(tensor.offset)
        return struct.unpack(f"<{tensor.shape[0]}f", file.read(4 * tensor.shape[0]))


def _llama3_divisors(scaling: RopeScaling, theta: float, head_dim: int) -> list[float]:
    divisors = []
    for index in range(0, head_dim, 2):
        turns = scaling.original_max_len / (2 * math.pi * theta ** (index / head_dim))
        span = scaling.high_freq_factor - scaling.low_freq_factor
        smooth = min(max((turns - scaling.low_freq_factor) / span, 0.0), 1.0)
        divisors.append(1.0 / ((1.0 - smooth) / scaling.factor + smooth))
    return divisors
