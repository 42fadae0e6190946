"""Mixtral: as Mistral, with experts in every layer."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.llama import read_mistral
from chairlift.models.families.mixtures.experts import read_experts, with_experts
from chairlift.models.spec import HF_NAMES, ModelConfig

_NAMES = replace(
    HF_NAMES,
    router="block_sparse_moe.gate",
    expert_gate_up=("block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"),
    expert_down="block_sparse_moe.experts.{}.w2",
)
_THETA = 1_000_000.0


def _mixtral(config: Fields) -> ModelConfig:
    experts = read_experts(config, ("num_local_experts",), "num_experts_per_tok", is_normalised=True)
    model = read_mistral(config, window=None, theta=_THETA, eps=1e-5)
    return with_experts(model, config.size("intermediate_size"), experts, [True] * model.num_layers)


MIXTRAL = Family(architecture="MixtralForCausalLM", model_type="mixtral", read=_mixtral, names=_NAMES)
