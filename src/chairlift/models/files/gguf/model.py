"""A model description from the metadata of a GGUF file.

Always: what the model code does not have is refused by name. Reads no tensor data except rotary factors (`rope.py`).
"""

import math
from collections import Counter
from dataclasses import replace

from chairlift.config.fields import MAX_LAYERS, Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.families.family import Family, Metadata
from chairlift.models.families.known import BY_GGUF
from chairlift.models.families.reading import read_sampling, with_attention
from chairlift.models.files.gguf.header import GgufHeader
from chairlift.models.files.gguf.rope import read_rotation
from chairlift.models.files.gguf.unread import check_unread
from chairlift.models.spec import BlockWeights, ModelConfig, Names, uniform_model
from chairlift.models.tensors import GGUF_NAMES

_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
# Quantised weights have no type to compute in; this one has the range of float32 at half its size.
_QUANTISED = "bfloat16"
# What the native kernels multiply by as it is.
KEPT_TYPES = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})
_FOUR_BITS = frozenset({"MXFP4"})
_OF_EXPERTS = 3  # dimensions


def load_gguf(header: GgufHeader) -> ModelConfig:
    everything = Fields(str(header.path), header.metadata)
    name = header.metadata.get("general.architecture")
    family = BY_GGUF.get(name) if isinstance(name, str) else None
    if family is None:
        raise InvalidConfig(
            f"{header.path}: general.architecture {name!r} is not supported; supported: {', '.join(BY_GGUF)}"
        )
    prefix = f"{name}."
    model = Metadata(
        f"{header.path}: {name}",
        {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)},
        header.tensors.keys(),
    )
    _refuse_unsupported(header, model)
    hidden, heads = model.size("embedding_length"), model.size("attention.head_count")
    head_dim = model.size("attention.key_length", hidden // heads or None)
    kv_heads = _first(model, family, "attention.head_count_kv").size("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise model.bad("attention.head_count_kv", f"must divide attention.head_count {heads}")
    if head_dim % 2:
        raise model.bad("attention.key_length", "must be even")
    if model.size("attention.value_length", head_dim) != head_dim:
        raise model.bad("attention.value_length", f"must equal the head size {head_dim}")
    rotation = read_rotation(header, model, head_dim)
    eos = [everything.token_ids(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")]
    eos.append(_ids_of(header, family.gguf_ends))
    config = uniform_model(
        architecture=family.architecture,
        hidden_size=hidden,
        num_layers=model.size("block_count", most=MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=_first(model, family, "feed_forward_length").size(
            "feed_forward_length", model.get("expert_feed_forward_length")
        ),
        vocab_size=_vocab_size(header, hidden),
        max_model_len=model.size("context_length"),
        rms_norm_eps=_eps(model),
        rope_theta=rotation.theta,
        is_tied="output.weight" not in header.tensors,
        has_qkv_bias="blk.0.attn_q.bias" in header.tensors,
        has_output_bias="blk.0.attn_output.bias" in header.tensors,
        has_inner_bias="blk.0.ffn_down.bias" in header.tensors,
        has_qk_norm="blk.0.attn_q_norm.weight" in header.tensors,
        sliding_window=int(model.number("attention.sliding_window", 0, most=2**31)),
        dtype=_dtype(header),
        blocks=_blocks(header, KEPT_TYPES),
        four_bits=_blocks(header, _FOUR_BITS, _OF_EXPERTS),
        bos_id=everything.token_id("tokenizer.ggml.bos_token_id"),
        eos_ids=tuple(dict.fromkeys(token for ids in eos for token in ids)),
        sampling=read_sampling(everything, "general.sampling.{}", temperature="temp", penalty="penalty_repeat"),
        names=_names(header),
    )
    config = family.from_gguf(model, with_attention(config, rotation=rotation))
    if model.number("expert_count", 0) and not any(layer.feed_forward.experts for layer in config.layers):
        raise model.bad("expert_count", f"is not supported in {family.architecture}")
    return replace(config, warnings=check_unread(model, family.architecture))


def _first(model: Metadata, family: Family, key: str) -> Fields:
    """With the first layer's value of a key that the family reads as a list of all."""
    values = model.get(key)
    if key not in family.gguf_by_layer or not isinstance(values, list) or not values:
        return model
    return Fields(model.origin, {**model.values, key: values[0]})


def _names(header: GgufHeader) -> Names:
    """Converters may put gate and up projections of experts into one tensor."""
    is_joined = any(name.endswith(".ffn_gate_up_exps.weight") for name in header.tensors)
    return replace(GGUF_NAMES, expert_gate_up=("ffn_gate_up_exps",)) if is_joined else GGUF_NAMES


def _ids_of(header: GgufHeader, names: tuple[str, ...]) -> tuple[int, ...]:
    """Of those tokens that the file's vocabulary has."""
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return tuple(tokens.index(name) for name in names if name in tokens) if isinstance(tokens, list) else ()


def _eps(model: Fields) -> float:
    key = "attention.layer_norm_rms_epsilon"
    return model.positive("attention.layer_norm_epsilon" if model.get(key) is None else key)


def _refuse_unsupported(header: GgufHeader, model: Fields) -> None:
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


def _blocks(header: GgufHeader, types: frozenset[str], least_rank: int = 2) -> BlockWeights | None:
    kept = [t for t in header.tensors.values() if len(t.shape) >= least_rank and t.type_name in types]
    if not kept:
        return None
    return BlockWeights(
        type_name=Counter(tensor.type_name for tensor in kept).most_common(1)[0][0],
        num_bytes=sum(tensor.num_bytes or 0 for tensor in kept),
        num_weights=sum(math.prod(tensor.shape) for tensor in kept),
    )
