"""Qwen3-Next and Qwen 3.5 to 3.8: gated delta nets, and attention with gates in every fourth layer; experts in some.

Norms are stored without the 1 that is added to them, but for those of delta nets; GGUF files have it. A quarter of each
head turns.
"""

from dataclasses import replace
from functools import partial

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family, Metadata
from chairlift.models.families.mixtures.experts import read_experts, with_experts
from chairlift.models.families.reading import (
    all_but_last,
    num_layers,
    read_attention,
    read_model,
    require,
    without_further,
)
from chairlift.models.families.rope import Turning
from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.models.mixers.mixer import MixerSpec
from chairlift.models.spec import HF_NAMES, ModelConfig

_NAMES = replace(
    HF_NAMES,
    norm_offset=1.0,
    shared_gate_up=("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"),
    shared_down="mlp.shared_expert.down_proj",
)
# Rows of what delta nets take in are stored by key head.
_NEXT_NAMES = replace(_NAMES, delta_inputs=("linear_attn.in_proj_qkvz",), delta_rates=("linear_attn.in_proj_ba",))
_LINEAR, _FULL = "linear_attention", "full_attention"
_PATTERN = 4  # of each group of so many layers, the last attends
_TURNING = Turning(share=0.25, own_keys=frozenset({"mrope_section", "mrope_interleaved"}))
_FURTHER = ("mtp.", "model.mtp.")


def _dense(config: Fields, width: int | None = None) -> ModelConfig:
    require(config, "hidden_act", "silu")
    require(config, "output_gate_type", "swish")
    require(config, "mamba_ssm_dtype", "float32")
    if not config.flag("attn_output_gate", True):
        raise config.bad("attn_output_gate", "must be true")
    attention = read_attention(config, head_dim=256, turning=_TURNING)
    attention = replace(attention, has_qk_norm=True, has_gate=True)
    delta_net = _delta_net(config)
    mixers: list[MixerSpec] = [attention if kind == _FULL else delta_net for kind in _kinds(config)]
    return replace(read_model(config, mixers, width=width), further=_FURTHER)


def _delta_net(config: Fields) -> DeltaNetSpec:
    key_heads, heads = config.size("linear_num_key_heads", 16), config.size("linear_num_value_heads", 32)
    if heads % key_heads:
        raise config.bad("linear_num_value_heads", f"must be a multiple of linear_num_key_heads {key_heads}")
    return DeltaNetSpec(
        num_key_heads=key_heads,
        num_heads=heads,
        key_dim=config.size("linear_key_head_dim", 128),
        value_dim=config.size("linear_value_head_dim", 128),
        num_taps=config.size("linear_conv_kernel_dim", 4),
    )


def _kinds(config: Fields) -> list[str]:
    count, pattern = num_layers(config), config.size("full_attention_interval", _PATTERN)
    given = config.get("layer_types")
    if given is None:
        return [_LINEAR if (layer + 1) % pattern else _FULL for layer in range(count)]
    if not isinstance(given, list) or len(given) != count or any(kind not in (_LINEAR, _FULL) for kind in given):
        raise config.bad("layer_types", f"must say {_LINEAR} or {_FULL} of each of the {count} layers")
    return given


def _with_experts(config: Fields, model: ModelConfig, is_normalised: bool) -> ModelConfig:
    experts = read_experts(
        config, ("num_experts",), "num_experts_per_tok", is_normalised=is_normalised, has_shared_gate=True,
        shared_width=config.size("shared_expert_intermediate_size", 512),
    )  # fmt: skip
    step, dense = config.size("decoder_sparse_step", 1), config.get("mlp_only_layers") or []
    if not isinstance(dense, list) or any(type(layer) is not int for layer in dense):
        raise config.bad("mlp_only_layers", "must be a list of layers")
    is_sparse = [(layer + 1) % step == 0 and layer not in dense for layer in range(model.num_layers)]
    return with_experts(model, config.size("moe_intermediate_size", 512), experts, is_sparse)


def _next(config: Fields) -> ModelConfig:
    return _with_experts(config, _dense(config), config.flag("norm_topk_prob", True))


def _sparse(config: Fields) -> ModelConfig:
    return _with_experts(config, _dense(config, width=1), is_normalised=True)  # no layer has a width of its own


def _next_from_gguf(metadata: Metadata, config: ModelConfig) -> ModelConfig:
    """Older files have all rows by key head."""
    inputs = ("ssm_in",) if any(name.endswith(".ssm_in.weight") for name in metadata.tensors) else None
    names = replace(config.names, delta_inputs=inputs or config.names.delta_inputs, delta_rates=("ssm_ba",))
    return _from_gguf(metadata, replace(config, names=names), is_tiled=False)


def _from_gguf(metadata: Metadata, config: ModelConfig, is_tiled: bool = True) -> ModelConfig:
    """Nothing in a file says whether its value heads are tiled: all of an architecture are, or none."""
    delta_net = _delta_net_of_gguf(metadata, is_tiled)
    metadata.get("rope.dimension_sections")  # of images: a token of text has one position
    plain, model = config.layers[0], without_further(metadata, config)
    attention = replace(plain.attention, has_qk_norm=True, has_gate=True)
    full, linear = replace(plain, mixer=attention), replace(plain, mixer=delta_net)
    layers = tuple(linear if each else full for each in _recurrent(metadata, config.num_layers)[: model.num_layers])
    names = replace(config.names, before_feed_forward="post_attention_norm", has_tiled_heads=delta_net.is_tiled)
    model = replace(model, layers=layers, names=names)
    if not metadata.number("expert_count", 0):
        return model
    experts = read_experts(
        metadata, ("expert_count",), "expert_used_count", is_normalised=True, has_shared_gate=True,
        shared_width=metadata.size("expert_shared_feed_forward_length"),
    )  # fmt: skip
    return with_experts(model, metadata.size("expert_feed_forward_length"), experts, [True] * model.num_layers)


def _delta_net_of_gguf(metadata: Metadata, is_tiled: bool) -> DeltaNetSpec:
    key_heads, heads = metadata.size("ssm.group_count"), metadata.size("ssm.time_step_rank")
    if heads % key_heads:
        raise metadata.bad("ssm.time_step_rank", f"must be a multiple of ssm.group_count {key_heads}")
    width = metadata.size("ssm.inner_size")
    if width % heads:
        raise metadata.bad("ssm.inner_size", f"must be a multiple of ssm.time_step_rank {heads}")
    return DeltaNetSpec(
        num_key_heads=key_heads, num_heads=heads, key_dim=metadata.size("ssm.state_size"), value_dim=width // heads,
        num_taps=metadata.size("ssm.conv_kernel"), is_tiled=is_tiled and heads != key_heads,
    )  # fmt: skip


def _recurrent(metadata: Metadata, count: int) -> list[bool]:
    """Of each layer, those that guess further tokens included."""
    key = "attention.recurrent_layers"
    given, pattern = metadata.get(key), metadata.size("full_attention_interval", _PATTERN)
    if given is None:
        return all_but_last(pattern, count)
    if not isinstance(given, list) or len(given) != count or any(each not in (0, 1) for each in given):
        raise metadata.bad(key, f"must say of each of the {count} layers whether it is a gated delta net")
    return [bool(each) for each in given]


_family = partial(Family, names=_NAMES, gguf_ends=("<|im_end|>", "<|endoftext|>"))
QWEN3_NEXT = _family(
    architecture="Qwen3NextForCausalLM", model_type="qwen3_next", read=_next, names=_NEXT_NAMES, gguf="qwen3next",
    from_gguf=_next_from_gguf,
)  # fmt: skip
QWEN3_5 = _family(
    architecture="Qwen3_5ForCausalLM", model_type="qwen3_5_text", read=_dense, gguf="qwen35", from_gguf=_from_gguf
)
QWEN3_5_MOE = _family(
    architecture="Qwen3_5MoeForCausalLM", model_type="qwen3_5_moe_text", read=_sparse, gguf="qwen35moe",
    from_gguf=_from_gguf,
)  # fmt: skip
