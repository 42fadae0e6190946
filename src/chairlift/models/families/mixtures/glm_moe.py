"""GLM-4.5 and 4.6, Air too: experts chosen by sigmoids, a shared one beside them, dense layers first."""

from dataclasses import replace

from chairlift.config.fields import MAX_LAYERS, Fields
from chairlift.models.families.family import Family
from chairlift.models.families.mixtures.experts import read_experts, require_scores, with_experts, with_groups
from chairlift.models.families.reading import num_layers, read_attention, read_model, require, without_further
from chairlift.models.families.rope import Turning
from chairlift.models.spec import ModelConfig

_SIGMOID = 2  # in GGUF files


def _glm4_moe(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    attention = read_attention(config, turning=Turning(share=0.5))
    attention = replace(attention, has_output_bias=False, has_qk_norm=config.flag("use_qk_norm", False))
    model = read_model(config, [attention] * num_layers(config), eps=1e-5)
    width = config.size("moe_intermediate_size")
    experts = read_experts(
        config, ("num_local_experts", "n_routed_experts"), "num_experts_per_tok", scores="sigmoid",
        is_normalised=config.flag("norm_topk_prob", True), factor=config.positive("routed_scaling_factor", 1.0),
        has_correction=True, shared_width=width * config.size("n_shared_experts", 1),
    )  # fmt: skip
    experts = with_groups(config, experts, "n_group", "topk_group")
    num_dense = int(config.number("first_k_dense_replace", 1))
    model = with_experts(model, width, experts, [layer >= num_dense for layer in range(model.num_layers)])
    return replace(model, num_further_layers=int(config.number("num_nextn_predict_layers", 1, most=MAX_LAYERS)))


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    require_scores(metadata, _SIGMOID)
    width = metadata.size("expert_feed_forward_length")
    experts = read_experts(
        metadata, ("expert_count",), "expert_used_count", scores="sigmoid",
        is_normalised=metadata.flag("expert_weights_norm", True),
        factor=metadata.positive("expert_weights_scale", 1.0),
        has_correction=True, shared_width=width * metadata.size("expert_shared_count", 1),
    )  # fmt: skip
    experts = with_groups(metadata, experts, "expert_group_count", "expert_group_used_count")
    names = replace(config.names, before_feed_forward="post_attention_norm")
    model = replace(without_further(metadata, config), names=names)
    num_dense = int(metadata.number("leading_dense_block_count", 1))
    return with_experts(model, width, experts, [layer >= num_dense for layer in range(model.num_layers)])


GLM4_MOE = Family(
    architecture="Glm4MoeForCausalLM", model_type="glm4_moe", read=_glm4_moe, gguf="glm4moe", from_gguf=_from_gguf
)
