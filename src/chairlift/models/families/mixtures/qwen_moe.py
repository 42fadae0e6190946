"""Qwen 3 with experts: as Qwen 3, in all layers but those that a configuration names."""

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.mixtures.experts import experts_of_gguf, read_experts, with_experts
from chairlift.models.families.qwen import read_qwen3
from chairlift.models.spec import ModelConfig


def _qwen3_moe(config: Fields) -> ModelConfig:
    experts = read_experts(
        config, ("num_local_experts", "num_experts"), "num_experts_per_tok",
        is_normalised=config.flag("norm_topk_prob", False),
    )  # fmt: skip
    model = read_qwen3(config)
    step, dense = config.size("decoder_sparse_step", 1), config.get("mlp_only_layers") or []
    if not isinstance(dense, list) or any(type(layer) is not int for layer in dense):
        raise config.bad("mlp_only_layers", "must be a list of layers")
    is_sparse = [(layer + 1) % step == 0 and layer not in dense for layer in range(model.num_layers)]
    return with_experts(model, config.size("moe_intermediate_size"), experts, is_sparse)


QWEN3_MOE = Family(
    architecture="Qwen3MoeForCausalLM",
    model_type="qwen3_moe",
    read=_qwen3_moe,
    gguf="qwen3moe",
    from_gguf=experts_of_gguf,
)
