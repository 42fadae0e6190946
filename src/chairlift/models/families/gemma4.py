"""Gemma 4, text models: wider heads and fewer keys in layers without a window, norms of values, factors of layers.

The last layers of small ones attend to keys and values of the last layer of their kind before them, and each token
brings every layer an input of its own. In larger ones keys are values too in layers without a window. Mixtures have
their experts beside the feed-forward, with norms of their own.
"""

from dataclasses import replace
from functools import partial

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family, Metadata
from chairlift.models.families.mixtures.experts import read_experts
from chairlift.models.families.reading import (
    all_but_last,
    read_attention,
    read_model,
    require,
    with_pattern,
    with_windows,
)
from chairlift.models.families.reading import num_layers as count_layers
from chairlift.models.families.rope import Turning, read_rotations
from chairlift.models.mixers.attention import AttentionSpec, Rotation
from chairlift.models.spec import HF_NAMES, FeedForwardSpec, LayerSpec, ModelConfig

_NAMES = replace(
    HF_NAMES,
    after_attention="post_attention_layernorm",
    before_feed_forward="pre_feedforward_layernorm",
    after_feed_forward="post_feedforward_layernorm",
    shared_gate_up=HF_NAMES.gate_up,
    shared_down=HF_NAMES.down,
    router="router.proj",
    expert_gate_up=("experts.{}.gate_proj", "experts.{}.up_proj"),
    expert_down="experts.{}.down_proj",
)
_PATTERN = 6  # of each group of so many layers, the last has no window
_LOCAL_THETA, _THETA, _SHARE = 1e4, 1e6, 0.25
_LOCAL_DIM, _DIM = 256, 512
_MAX_LEN, _UNIFIED_MAX_LEN = 131_072, 262_144
_TOKEN_WIDTH = 256
_WINDOW, _UNIFIED_WINDOW = 512, 1024


def _gemma4(config: Fields) -> ModelConfig:
    model = _text(config, _WINDOW, _MAX_LEN)
    width = config.get("hidden_size_per_layer_input", _TOKEN_WIDTH)
    if width:
        width = config.size("hidden_size_per_layer_input", _TOKEN_WIDTH)
        if config.size("vocab_size_per_layer_input", model.vocab_size) != model.vocab_size:
            raise config.bad("vocab_size_per_layer_input", f"must be vocab_size {model.vocab_size}")
    config.get("vocab_size_per_layer_input")
    return replace(model, token_width=width or 0)


def _unified(config: Fields) -> ModelConfig:
    return _text(config, _UNIFIED_WINDOW, _UNIFIED_MAX_LEN)


def _text(config: Fields, window: int, max_len: int) -> ModelConfig:
    require(config, "hidden_activation", "gelu_pytorch_tanh")
    require(config, "use_bidirectional_attention", "vision")  # images see each other, text does not
    model = read_model(config, _attentions(config, window), max_len=max_len, is_tied=True, activation="gelu_tanh")
    cap = config.get("final_logit_softcapping")
    return replace(
        model,
        layers=tuple(_layer(config, layer) for layer in model.layers),
        embedding_factor=model.hidden_size**0.5,
        logit_cap=0.0 if cap is None else config.positive("final_logit_softcapping"),
    )


def _attentions(config: Fields, window: int) -> tuple[AttentionSpec, ...]:
    count = count_layers(config)
    dim, kv_heads = _wide(config, count)
    full, local = _rotations(config, dim)
    own = replace(
        read_attention(config, head_dim=_LOCAL_DIM, rotation=local), scale=1.0, has_qk_norm=True, has_value_norm=True
    )
    windowed = with_windows(config, own, all_but_last(_PATTERN, count), window)
    if windowed[-1].window:
        raise config.bad("layer_types", "must end with full_attention")
    if own.num_heads % kv_heads:
        raise config.bad("num_global_key_value_heads", f"must divide num_attention_heads {own.num_heads}")
    wide = replace(
        own, num_kv_heads=kv_heads, head_dim=dim, rotation=full,
        has_keys_as_values=config.flag("attention_k_eq_v", False),
    )  # fmt: skip
    return _shared(config, "num_kv_shared_layers", tuple(each if each.window else wide for each in windowed))


def _shared(config: Fields, key: str, specs: tuple[AttentionSpec, ...]) -> tuple[AttentionSpec, ...]:
    """The last of them, as many as the key says, attend to keys and values of others."""
    count = config.size(key, most=len(specs) - 1) if config.get(key) else 0
    own, last = specs[: len(specs) - count], specs[len(specs) - count :]
    if missing := {each.window for each in specs} - {each.window for each in own}:
        raise config.bad(key, f"must leave a layer with window {missing.pop()} keys of its own")
    return (*own, *map(_sharing, last))


def _sharing(spec: AttentionSpec) -> AttentionSpec:
    return replace(spec, has_own_rows=False, has_value_norm=False, has_keys_as_values=False)


def _wide(config: Fields, count: int) -> tuple[int, int]:
    """Width of heads, and heads of keys and values, of layers without a window."""
    local_heads = config.size("num_key_value_heads", config.size("num_attention_heads"))
    given = config.get("per_layer_config")
    dim = config.size("global_head_dim", _DIM)
    has_own = config.get("num_global_key_value_heads") is not None and config.flag("attention_k_eq_v", False)
    if given is None:
        return dim, config.size("num_global_key_value_heads") if has_own else local_heads
    types = config.get("layer_types") or []
    full = {i for i in range(count) if (types[i] == "full_attention" if i < len(types) else (i + 1) % _PATTERN == 0)}
    if not isinstance(given, dict) or not all(
        str(key).isdigit() and isinstance(each, dict) for key, each in given.items()
    ):
        raise config.bad("per_layer_config", "must be a map of layers")
    kinds = [each for _, each in given.items()]
    if {int(key) for key in given} != full or any(each != kinds[0] for each in kinds):
        raise config.bad("per_layer_config", "must say the same of each layer with full_attention, and nothing else")
    wide = Fields(f"{config.origin}: per_layer_config", kinds[0])
    dim, heads = wide.size("head_dim", _LOCAL_DIM), wide.size("num_key_value_heads", local_heads)
    if wide.unread:
        raise wide.bad(wide.unread[0], "is not supported")
    return dim, heads


def _rotations(config: Fields, dim: int) -> tuple[Rotation, Rotation]:
    if config.get("rope_parameters") is None:
        return Rotation(theta=_THETA, num_pairs=int(_SHARE * dim // 2)), Rotation(theta=_LOCAL_THETA)
    return read_rotations(config, _THETA, _LOCAL_THETA, turning=Turning(head_dim=dim))


def _layer(config: Fields, layer: LayerSpec) -> LayerSpec:
    has_double = config.flag("use_double_wide_mlp", False) and not layer.mixer.has_own_rows
    width = layer.feed_forward.width * (2 if has_double else 1)
    feed_forward = replace(layer.feed_forward, width=width)
    if config.flag("enable_moe_block", False):
        feed_forward = _with_experts(config, feed_forward)
    return replace(layer, feed_forward=feed_forward, has_norm_after=True, has_scalar=True)


def _with_experts(config: Fields, plain: FeedForwardSpec) -> FeedForwardSpec:
    return _beside(plain, config, "num_experts", "top_k_experts", "moe_intermediate_size")


def _beside(plain: FeedForwardSpec, config: Fields, count: str, chosen: str, width: str) -> FeedForwardSpec:
    """With experts beside it; the others are keys."""
    experts = read_experts(
        config, (count,), chosen, is_normalised=True, shared_width=plain.width, has_factors=True, has_norms=True
    )
    return replace(plain, width=config.size(width), experts=experts)


def _from_gguf(metadata: Metadata, config: ModelConfig) -> ModelConfig:
    """One architecture of files is of all sizes."""
    count, names = config.num_layers, config.names
    mixers, widths = _gguf_attentions(metadata, config), _each(metadata, "feed_forward_length", count)
    layers = []
    for index, layer in enumerate(config.layers):
        has_scalar = f"{names.layer.format(index)}{names.scalar}" in metadata.tensors
        feed_forward = _gguf_feed_forward(metadata, widths[index])
        layers.append(
            replace(layer, mixer=mixers[index], feed_forward=feed_forward, has_norm_after=True, has_scalar=has_scalar)
        )
    return replace(
        config,
        layers=tuple(layers),
        embedding_factor=config.hidden_size**0.5,
        token_width=int(metadata.number("embedding_length_per_layer_input", 0)),
        logit_cap=metadata.number("final_logit_softcapping", 0.0),
        names=replace(names, shared_gate_up=names.gate_up, shared_down=names.down),
    )


def _gguf_attentions(metadata: Metadata, config: ModelConfig) -> tuple[AttentionSpec, ...]:
    plain, key = config.layers[0].attention, "attention.head_count_kv"
    full = replace(plain, window=0, scale=1.0, has_qk_norm=True, has_value_norm=True)
    model = with_pattern(metadata, config, _gguf_local(metadata, full), full, _PATTERN)
    specs, counts = [], _each(metadata, key, config.num_layers)
    for index, (layer, num_kv_heads) in enumerate(zip(model.layers, counts, strict=True)):
        if plain.num_heads % num_kv_heads:
            raise metadata.bad(key, f"must divide attention.head_count {plain.num_heads}")
        has_values = layer.attention.window or f"blk.{index}.attn_v.weight" in metadata.tensors
        specs.append(replace(layer.attention, num_kv_heads=num_kv_heads, has_keys_as_values=not has_values))
    return _shared(metadata, "attention.shared_kv_layers", tuple(specs))


def _gguf_local(metadata: Metadata, full: AttentionSpec) -> AttentionSpec:
    """Of layers with a window."""
    dim = metadata.size("attention.key_length_swa")
    for key in ("attention.value_length_swa", "rope.dimension_count_swa"):
        if metadata.size(key, dim) != dim:
            raise metadata.bad(key, f"must equal attention.key_length_swa {dim}")
    rotation = Rotation(theta=metadata.positive("rope.freq_base_swa", _LOCAL_THETA))
    window = metadata.size("attention.sliding_window", _WINDOW)
    return replace(full, head_dim=dim, window=window, rotation=rotation)


def _gguf_feed_forward(metadata: Metadata, width: int) -> FeedForwardSpec:
    plain = FeedForwardSpec(width=width, activation="gelu_tanh")
    if not metadata.number("expert_count", 0):
        return plain
    return _beside(plain, metadata, "expert_count", "expert_used_count", "expert_feed_forward_length")


def _each(metadata: Metadata, key: str, count: int) -> list[int]:
    """Of each layer, where one number may be meant for all."""
    given = metadata.get(key)
    if not isinstance(given, list):
        return [metadata.size(key)] * count
    if len(given) != count or any(type(each) is not int or each < 1 for each in given):
        raise metadata.bad(key, f"must be a positive whole number, or one of each of the {count} layers")
    return given


_family = partial(Family, names=_NAMES)
# Its GGUF files are those of both.
GEMMA4 = _family(
    architecture="Gemma4ForCausalLM", model_type="gemma4_text", read=_gemma4, gguf="gemma4", from_gguf=_from_gguf,
    gguf_ends=("<turn|>", "<eos>", "<|tool_response>"),
    gguf_by_layer=("attention.head_count_kv", "feed_forward_length"),
)  # fmt: skip
GEMMA4_UNIFIED = _family(architecture="Gemma4UnifiedForCausalLM", model_type="gemma4_unified_text", read=_unified)
