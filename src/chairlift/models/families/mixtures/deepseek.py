"""DeepSeek V2 and V3 and GLM-4.7-Flash: latent attention, dense layers first, and a shared expert beside the others.

The norms of latents have the eps that `LatentSpec` has, whatever the configuration says of other norms.
"""

from dataclasses import replace

from chairlift.config.fields import MAX_LAYERS, Fields
from chairlift.models.families.family import Family
from chairlift.models.families.mixtures.experts import read_experts, with_experts, with_groups
from chairlift.models.families.reading import num_layers, read_model, refuse_true, require
from chairlift.models.families.rope import Turning, read_rotation, rotation_map, yarn_length
from chairlift.models.mixers.attention import Rotation
from chairlift.models.mixers.latent import LatentSpec
from chairlift.models.spec import ExpertsSpec, ModelConfig


def _deepseek2(config: Fields) -> ModelConfig:
    require(config, "scoring_func", "softmax")
    require(config, "topk_method", "greedy")
    refuse_true(config, "norm_topk_prob")
    for key in ("n_group", "topk_group"):  # mean nothing to a greedy choice
        config.get(key)
    factor = config.positive("routed_scaling_factor", 1.0)
    return _model(config, _experts(config, "softmax", factor), int(config.number("first_k_dense_replace", 0)))


def _deepseek3(config: Fields) -> ModelConfig:
    return _by_sigmoid(config, int(config.number("first_k_dense_replace")))


def _glm4_lite(config: Fields) -> ModelConfig:
    num_dense, kinds = int(config.number("first_k_dense_replace", 1)), config.get("mlp_layer_types")
    if kinds is not None:
        count = num_layers(config)
        num_dense = kinds.count("dense") if isinstance(kinds, list) else 0
        if kinds != ["dense"] * num_dense + ["sparse"] * (count - num_dense):
            raise config.bad("mlp_layer_types", f"must name each of the {count} layers, first dense, then sparse ones")
    return _by_sigmoid(config, num_dense, eps=1e-5)


def _by_sigmoid(config: Fields, num_dense: int, eps: float = 1e-6) -> ModelConfig:
    require(config, "scoring_func", "sigmoid")
    require(config, "topk_method", "noaux_tc")
    if not config.flag("rope_interleave", True):
        raise config.bad("rope_interleave", "must be true")
    for key in ("n_group", "topk_group"):
        config.size(key)
    experts = _experts(config, "sigmoid", config.positive("routed_scaling_factor"))
    experts = replace(experts, is_normalised=config.flag("norm_topk_prob", True), has_correction=True)
    model = _model(config, with_groups(config, experts, "n_group", "topk_group"), num_dense, eps)
    return replace(model, num_further_layers=int(config.number("num_nextn_predict_layers", 1, most=MAX_LAYERS)))


def _experts(config: Fields, scores: str, factor: float) -> ExpertsSpec:
    shared = config.size("moe_intermediate_size") * config.size("n_shared_experts")
    return read_experts(
        config, ("n_routed_experts",), "num_experts_per_tok", scores=scores, factor=factor, shared_width=shared
    )


def _model(config: Fields, experts: ExpertsSpec, num_dense: int, eps: float = 1e-6) -> ModelConfig:
    """eps: of the other norms, where the configuration does not say."""
    require(config, "hidden_act", "silu")
    refuse_true(config, "attention_bias", "mlp_bias")
    if config.number("moe_layer_freq", 1) != 1:
        raise config.bad("moe_layer_freq", "must be 1")
    for key in ("aux_loss_alpha", "seq_aux", "ep_size"):  # of training
        config.get(key)
    model = read_model(config, [_latent(config)] * num_layers(config), eps=eps)
    is_sparse = [layer >= num_dense for layer in range(model.num_layers)]
    return with_experts(model, config.size("moe_intermediate_size"), experts, is_sparse)


def _latent(config: Fields) -> LatentSpec:
    heads = config.size("num_attention_heads")
    if config.size("num_key_value_heads", heads) != heads:
        raise config.bad("num_key_value_heads", f"must be num_attention_heads {heads}")
    still, turned = config.size("qk_nope_head_dim"), config.size("qk_rope_head_dim")
    if turned % 2:
        raise config.bad("qk_rope_head_dim", "must be even")
    for key in ("head_dim", "qk_head_dim"):  # follow from these
        config.get(key)
    has_query_rank = config.get("q_lora_rank") is not None or "q_lora_rank" not in config.values
    rotation = read_rotation(config, Turning(head_dim=turned))
    return LatentSpec(
        num_heads=heads, query_rank=config.size("q_lora_rank") if has_query_rank else 0,
        rank=config.size("kv_lora_rank"), still_dim=still, turned_dim=turned, value_dim=config.size("v_head_dim"),
        scale=_scale(config, still + turned, rotation), rotation=rotation,
    )  # fmt: skip


def _scale(config: Fields, head_dim: int, rotation: Rotation) -> float:
    """Where YaRN stretches the rotation, mscale_all_dim lengthens queries and keys whole, not the pairs alone."""
    scale: float = head_dim**-0.5
    if rotation.scaling is None:
        return scale
    return scale * yarn_length(rotation.scaling.factor, rotation_map(config).number("mscale_all_dim", 0.0)) ** 2


DEEPSEEK2 = Family(architecture="DeepseekV2ForCausalLM", model_type="deepseek_v2", read=_deepseek2)
DEEPSEEK3 = Family(architecture="DeepseekV3ForCausalLM", model_type="deepseek_v3", read=_deepseek3)
GLM4_LITE = Family(architecture="Glm4MoeLiteForCausalLM", model_type="glm4_moe_lite", read=_glm4_lite)
