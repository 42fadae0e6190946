"""Keys of config.json that most families share, read into the parts of a declaration.

Always: a value that is read and not built is refused by key. Keys that a family does not read are judged afterwards
(`unread.py`): refused where they change the arithmetic of some family and are not neutral, otherwise named in a warning
unless they are known to be harmless.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from chairlift.config.fields import MAX_LAYERS, Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.families.rope import THETA, WHOLE, Turning, read_rotation
from chairlift.models.mixers.attention import AttentionSpec, Rotation
from chairlift.models.mixers.mixer import MixerSpec
from chairlift.models.spec import FeedForwardSpec, LayerSpec, ModelConfig, SamplingDefaults

_SLIDING, _FULL = "sliding_attention", "full_attention"


def num_layers(config: Fields) -> int:
    return config.size("num_hidden_layers", most=MAX_LAYERS)


def read_attention(
    config: Fields, *, num_kv_heads: int | None = None, head_dim: int | None = None, rotation: Rotation | None = None,
    turning: Turning = WHOLE, theta: float = THETA,
) -> AttentionSpec:  # fmt: skip
    """Of every layer. Defaults are what the family means where its configuration does not say."""
    heads = config.size("num_attention_heads")
    if "num_key_value_heads" in config.values:
        num_kv_heads = heads  # null there means so
    kv_heads = config.size("num_key_value_heads", num_kv_heads)
    if heads % kv_heads:
        raise config.bad("num_key_value_heads", f"must divide num_attention_heads {heads}")
    dim = _head_dim(config, heads, head_dim)
    if rotation is None:
        rotation = read_rotation(config, replace(turning, head_dim=dim), theta)
    has_bias = config.flag("attention_bias", False)
    return AttentionSpec(
        num_heads=heads, num_kv_heads=kv_heads, head_dim=dim, scale=dim**-0.5, rotation=rotation, has_bias=has_bias,
        has_output_bias=has_bias,
    )  # fmt: skip


def _head_dim(config: Fields, heads: int, default: int | None) -> int:
    hidden = config.size("hidden_size")
    if "head_dim" in config.values:
        default = None  # null there means an equal share of the hidden size
    if config.get("head_dim") is None and default is None and hidden % heads:
        raise config.bad("hidden_size", f"must be a multiple of num_attention_heads {heads}")
    head_dim = config.size("head_dim", default or hidden // heads)
    if head_dim % 2:
        raise config.bad("head_dim", "must be even")
    return head_dim


def with_windows(
    config: Fields, attention: AttentionSpec, sliding: Sequence[bool], default: int | None = None,
    key: str = "sliding_window",
) -> tuple[AttentionSpec, ...]:  # fmt: skip
    """One for each layer; layer_types, where they are given, say which layers have a window. key: of its size."""
    config.get(key)  # some files have it though no layer has a window
    types = config.get("layer_types")
    if types is not None:
        if not isinstance(types, list) or any(kind not in (_FULL, _SLIDING) for kind in types):
            raise config.bad("layer_types", f"must be {_FULL} or {_SLIDING}")
        if len(types) != len(sliding):
            raise config.bad("layer_types", f"must name each of the {len(sliding)} layers")
        sliding = [kind == _SLIDING for kind in types]
    window = config.size(key, default) if any(sliding) else 0
    return tuple(replace(attention, window=window) if is_sliding else attention for is_sliding in sliding)


def all_but_last(size: int, count: int) -> list[bool]:
    """Of each of so many layers, whether it is not the last of a group of `size`."""
    return [(layer + 1) % size != 0 for layer in range(count)]


def turned_if_windowed(attentions: Sequence[AttentionSpec]) -> tuple[AttentionSpec, ...]:
    """Those without a window lose their rotation."""
    return tuple(spec if spec.window else replace(spec, rotation=None) for spec in attentions)


def read_model(
    config: Fields, mixers: Sequence[MixerSpec], *, max_len: int | None = None, is_tied: bool = False,
    activation: str = "silu", has_norm_after: bool = False, eps: float = 1e-6, eps_key: str = "rms_norm_eps",
    width: int | None = None,
) -> ModelConfig:  # fmt: skip
    """A declaration of layers with these mixers; a family replaces in it what differs. eps: of norms, and width: of the
    feed-forward, where the configuration does not say."""
    refuse_true(config, "rope_interleaved")
    feed_forward = FeedForwardSpec(
        width=config.size("intermediate_size", width), activation=activation, has_bias=config.flag("mlp_bias", False)
    )
    return ModelConfig(
        architecture="",  # `Family.model` sets it
        hidden_size=config.size("hidden_size"),
        vocab_size=config.size("vocab_size"),
        max_model_len=config.size("max_position_embeddings", max_len),
        layers=tuple(
            LayerSpec(mixer=mixer, feed_forward=feed_forward, has_norm_after=has_norm_after) for mixer in mixers
        ),
        rms_norm_eps=config.positive(eps_key, eps),
        is_tied=config.flag("tie_word_embeddings", is_tied),
    )


def with_layers(model: ModelConfig, **changes: Any) -> ModelConfig:
    """With the same fields of every layer replaced."""
    return replace(model, layers=tuple(replace(layer, **changes) for layer in model.layers))


def with_attention(model: ModelConfig, **changes: Any) -> ModelConfig:
    """With the same fields of every layer's attention replaced."""
    layers = (replace(layer, mixer=replace(layer.attention, **changes)) for layer in model.layers)
    return replace(model, layers=tuple(layers))


def with_pattern(
    metadata: Fields, model: ModelConfig, local: AttentionSpec, full: AttentionSpec, size: int
) -> ModelConfig:
    """Layers with and without a window, as GGUF metadata list them; where they do not, the last of each group of `size`
    has none."""
    key, count = "attention.sliding_window_pattern", model.num_layers
    given = metadata.get(key)
    if isinstance(given, list):
        if len(given) != count or any(each not in (0, 1) for each in given):
            raise metadata.bad(key, f"must say of each of the {count} layers whether it has a window")
        sliding = [bool(each) for each in given]
    else:
        size = metadata.size(key, size)
        sliding = all_but_last(size, count)
    layers = (
        replace(layer, mixer=local if has_window else full)
        for layer, has_window in zip(model.layers, sliding, strict=True)
    )
    return replace(model, layers=tuple(layers))


def without_further(metadata: Fields, model: ModelConfig) -> ModelConfig:
    """The model of a GGUF file without its last layers, which guess further tokens and are counted with the others."""
    key = "nextn_predict_layers"
    count = int(metadata.number(key, 0))
    if count >= model.num_layers:
        raise metadata.bad(key, f"must be below block_count {model.num_layers}")
    return replace(model, layers=model.layers[: model.num_layers - count], num_further_layers=count)


def read_sampling(
    given: Fields, key: str = "{}", temperature: str = "temperature", penalty: str = "repetition_penalty"
) -> SamplingDefaults:
    """`key`: how a name becomes a key; the other two are the names that differ between files."""
    return SamplingDefaults(
        temperature=given.number(key.format(temperature), 1.0, most=100.0),
        top_k=int(given.number(key.format("top_k"), 0)),
        top_p=given.number(key.format("top_p"), 1.0, most=1.0) or 1.0,
        min_p=given.number(key.format("min_p"), 0.0, most=1.0),
        repetition_penalty=given.number(key.format(penalty), 1.0, least=0.01, most=100.0),
    )


def refuse_true(config: Fields, *keys: str) -> None:
    for key in keys:
        if config.flag(key, False):
            raise InvalidConfig(f"{config.origin}: {key} true is not supported")


def require(config: Fields, key: str, *allowed: str) -> None:
    """Refuses values other than these, of which the first is meant where the key is absent."""
    if config.get(key) not in (None, *allowed):
        raise config.bad(key, f"must be {' or '.join(map(repr, allowed))}")
