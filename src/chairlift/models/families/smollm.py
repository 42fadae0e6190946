"""SmolLM3: as Llama, without rotation in some layers."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import (
    all_but_last,
    num_layers,
    read_attention,
    read_model,
    require,
    with_windows,
)
from chairlift.models.spec import ModelConfig

_THETA = 2_000_000.0
_INTERVAL = 4  # of each group of so many layers, the last has no rotation


def _smollm3(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    turns = _turns(config)
    has_window = config.flag("use_sliding_window", False) and config.get("sliding_window") is not None
    attention = read_attention(config, num_kv_heads=4, theta=_THETA)
    attentions = with_windows(config, attention, [has_window and not has_turn for has_turn in turns])
    pairs = zip(attentions, turns, strict=True)
    return read_model(
        config, [each if has_turn else replace(each, rotation=None) for each, has_turn in pairs], is_tied=True
    )


def _turns(config: Fields) -> list[bool]:
    """Whether each layer has a rotation; the key means those that have one, whatever it is called."""
    count, interval = num_layers(config), config.size("no_rope_layer_interval", _INTERVAL)
    if (given := config.get("no_rope_layers")) is None:
        return all_but_last(interval, count)
    if not isinstance(given, list) or len(given) != count or any(each not in (0, 1) for each in given):
        raise config.bad("no_rope_layers", f"must be 0 or 1 for each of the {count} layers")
    return [bool(each) for each in given]


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    layer = config.layers[0]
    still = replace(layer, mixer=replace(layer.attention, rotation=None))
    layers = tuple(layer if has_turn else still for has_turn in all_but_last(_INTERVAL, config.num_layers))
    return replace(config, layers=layers, names=replace(config.names, has_paired_rows=True))


SMOLLM3 = Family(
    architecture="SmolLM3ForCausalLM", model_type="smollm3", read=_smollm3, gguf="smollm3", from_gguf=_from_gguf
)
