"""Exaone 4: norms after each branch alone and of query and key heads; beside layers with windows others do not turn."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import (
    num_layers,
    read_attention,
    read_model,
    require,
    turned_if_windowed,
    with_layers,
    with_pattern,
    with_windows,
)
from chairlift.models.spec import HF_NAMES, ModelConfig

_NAMES = replace(HF_NAMES, after_attention="post_attention_layernorm", after_feed_forward="post_feedforward_layernorm")
_WINDOW, _PATTERN = 4096, 4  # of each group of so many layers, the last has no window
_WITH_WINDOWS = 64  # layers of the model whose GGUF files may not say that it has windows


def _exaone4(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    attention = replace(read_attention(config, num_kv_heads=config.size("num_attention_heads")), has_qk_norm=True)
    has_windows = "sliding_window" not in config.values or config.get("sliding_window") is not None
    config.get("sliding_window_pattern")  # some number, where there are no windows
    pattern = _pattern(config) if has_windows else [False]
    sliding = [pattern[layer % len(pattern)] for layer in range(num_layers(config))]
    attentions = with_windows(config, attention, sliding, _WINDOW)
    if has_windows:
        attentions = turned_if_windowed(attentions)
    model = read_model(config, attentions, max_len=2048, has_norm_after=True, eps=1e-5)
    return with_layers(model, has_norm_before=False)


def _pattern(config: Fields) -> list[bool]:
    """Whether layers have a window, again and again: LLLG, or a number whose last layer has none."""
    given = config.get("sliding_window_pattern", _PATTERN)
    if isinstance(given, str) and given and set(given) <= {"L", "G"}:
        return [letter == "L" for letter in given]
    size = config.size("sliding_window_pattern", _PATTERN)
    return [True] * (size - 1) + [False]


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    model = with_layers(config, has_norm_before=False, has_norm_after=True)
    attention = model.layers[0].attention
    window = attention.window or (_WINDOW if config.num_layers == _WITH_WINDOWS else 0)
    if not window:
        return model
    local, full = replace(attention, window=window), replace(attention, window=0, rotation=None)
    return with_pattern(metadata, model, local, full, _PATTERN)


EXAONE4 = Family(
    architecture="Exaone4ForCausalLM", model_type="exaone4", read=_exaone4, names=_NAMES, gguf="exaone4",
    from_gguf=_from_gguf,
)  # fmt: skip
