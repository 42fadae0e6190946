"""ModernBERT: norms before each branch, rotated heads, local attention in two of three layers, a gated feed-forward.

The first layer has no norm before its attention, as the embedding has one.
"""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.embedding.bert import EncoderFamily, read_activation, read_heads
from chairlift.models.embedding.declared import EncoderConfig, EncoderLayerSpec, EncoderNames, HeadSpec, Pooling
from chairlift.models.families.reading import num_layers
from chairlift.models.families.rope import read_rotations
from chairlift.models.mixers.attention import Rotation

_FULL, _LOCAL = "full_attention", "sliding_attention"
_THETAS = {_FULL: ("global_rope_theta", 160_000.0), _LOCAL: ("local_rope_theta", 10_000.0)}
_NAMES = EncoderNames(
    prefix="model.",
    embedding="embeddings.tok_embeddings",
    embedding_norm="embeddings.norm",
    layer="layers.{}.",
    qkv=("attn.Wqkv",),
    output="attn.Wo",
    attention_norm="attn_norm",
    up="mlp.Wi",
    down="mlp.Wo",
    feed_forward_norm="mlp_norm",
    final_norm="final_norm",
    redundant=("head.", "decoder."),
)


def _kinds(config: Fields) -> list[str]:
    """Of attention, for each layer."""
    every, count = config.size("global_attn_every_n_layers", 3), num_layers(config)
    given = config.get("layer_types")
    if given is None:
        return [_LOCAL if index % every else _FULL for index in range(count)]
    if not isinstance(given, list) or len(given) != count or any(kind not in (_FULL, _LOCAL) for kind in given):
        raise config.bad("layer_types", f"must name each of the {count} layers {_FULL} or {_LOCAL}")
    return list(given)


def _rotations(config: Fields) -> dict[str, Rotation]:
    thetas = [config.positive(*each) for each in _THETAS.values()]
    return dict(zip(_THETAS, read_rotations(config, *thetas), strict=True))


def _modernbert(config: Fields, num_labels: int) -> tuple[EncoderConfig, Pooling]:
    rotations, attention = _rotations(config), read_heads(config)
    window = config.size("local_attention", 128)
    if window < 2:
        raise config.bad("local_attention", "must be at least 2")
    reach = {_FULL: 0, _LOCAL: window // 2}  # half of it lies to each side
    width, activation = config.size("intermediate_size"), read_activation(config, "hidden_activation")
    layers = tuple(
        EncoderLayerSpec(
            attention=replace(attention, rotation=rotations[kind]),
            reach=reach[kind],
            width=width,
            activation=activation,
            is_gated=True,
            has_attention_norm=index > 0,
        )
        for index, kind in enumerate(_kinds(config))
    )
    has_norm_bias = config.flag("norm_bias", False)
    head = HeadSpec(
        num_labels=num_labels,
        activation=read_activation(config, "classifier_activation"),
        dense="head.dense",
        norm="head.norm",
        out="classifier",
        has_dense_bias=config.flag("classifier_bias", False),
    )
    pooling: Pooling = "mean" if config.get("classifier_pooling") == "mean" else "cls"
    if config.get("classifier_pooling") not in (None, "cls", "mean"):
        raise config.bad("classifier_pooling", "must be cls or mean")
    for key in ("decoder_bias", "max_position_embeddings"):
        config.get(key)
    encoder = EncoderConfig(
        layers=layers,
        norm_eps=config.positive("norm_eps", 1e-5),
        has_norm_before=True,
        has_norm_bias=has_norm_bias,
        has_attention_bias=config.flag("attention_bias", False),
        has_feed_forward_bias=config.flag("mlp_bias", False),
        names=_NAMES,
        head=head if num_labels else None,
    )
    return encoder, pooling


FAMILY = EncoderFamily("ModernBert", "modernbert", _modernbert)
