"""Cohere 2: centred norms, branches in parallel, rotation in layers with a window alone, a factor of logits."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import (
    all_but_last,
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

_NAMES = replace(HF_NAMES, has_paired_rows=True)
_WINDOW, _PATTERN = 4096, 4  # of each group of so many layers, the last has no window
_LOGITS = 0.0625


def _cohere2(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    for key in ("use_parallel_block", "use_gated_activation"):
        if not config.flag(key, True):
            raise config.bad(key, "must be true")
    require(config, "position_embedding_type", "rope_gptj")
    require(config, "order_of_interleaved_layers", "local_attn_first")
    attention = read_attention(config, num_kv_heads=config.size("num_attention_heads"))
    pattern = config.size("sliding_window_pattern", _PATTERN)
    sliding = all_but_last(pattern, num_layers(config))
    attentions = turned_if_windowed(with_windows(config, attention, sliding, _WINDOW))
    model = with_layers(
        read_model(config, attentions, max_len=8192, is_tied=True, eps=1e-5, eps_key="layer_norm_eps"), is_parallel=True
    )
    return replace(model, has_centred_norms=True, logit_factor=config.positive("logit_scale", _LOGITS))


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    attention = config.layers[0].attention
    local = replace(attention, window=metadata.size("attention.sliding_window", _WINDOW))
    full = replace(attention, window=0, rotation=None)
    model = with_pattern(metadata, with_layers(config, is_parallel=True), local, full, _PATTERN)
    return replace(
        model,
        has_centred_norms=True,
        logit_factor=metadata.positive("logit_scale", _LOGITS),
        names=replace(config.names, has_paired_rows=True),
    )


COHERE2 = Family(
    architecture="Cohere2ForCausalLM", model_type="cohere2", read=_cohere2, names=_NAMES, gguf="cohere2",
    from_gguf=_from_gguf,
)  # fmt: skip
