"""Configurations of mixtures: what each layer becomes, and what is refused in one line that names the key."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.families.family import Family
from chairlift.models.families.mixtures.glm_moe import GLM4_MOE
from chairlift.models.families.mixtures.mixtral import MIXTRAL
from chairlift.models.families.mixtures.qwen_moe import QWEN3_MOE
from chairlift.models.shards import check_cuts
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import num_parameters
from chairlift.runner.weights.quantize import pick_quantize
from unit.runner.twins import make_twin

SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 56, "vocab_size": 97, "max_position_embeddings": 64, "moe_intermediate_size": 24,
    "num_experts_per_tok": 2,
}  # fmt: skip
COUNTS = {MIXTRAL: "num_local_experts", QWEN3_MOE: "num_experts", GLM4_MOE: "n_routed_experts"}


def read(family: Family, **own: Any) -> ModelConfig:
    return family.model(Fields("config.json", SIZES | {COUNTS[family]: 8} | own))


@pytest.mark.parametrize(
    ("own", "dense"),
    [({}, []), ({"mlp_only_layers": [0, 2]}, [0, 2]), ({"decoder_sparse_step": 2}, [0, 2]),
     ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, [0, 2, 3])],
)  # fmt: skip
def test_layers_are_dense_or_sparse_as_the_file_says(own: dict[str, Any], dense: list[int]) -> None:
    layers = read(QWEN3_MOE, **own).layers
    assert [index for index, layer in enumerate(layers) if layer.feed_forward.experts is None] == dense
    assert {(layer.feed_forward.width, layer.feed_forward.dense_width) for layer in layers} <= {(24, 0), (56, 56)}


def test_a_shared_expert_is_as_wide_as_all_of_them_together() -> None:
    first, second, *_ = read(GLM4_MOE, n_shared_experts=3, first_k_dense_replace=1).layers
    assert (first.feed_forward.dense_width, second.feed_forward.dense_width, second.feed_forward.width) == (56, 72, 24)


@pytest.mark.parametrize(
    ("family", "own", "complaint"),
    [
        (MIXTRAL, {"num_experts_per_tok": 9}, "num_experts_per_tok must be at most num_local_experts 8, got 9"),
        (MIXTRAL, {"num_local_experts": 0}, "num_local_experts must be a positive whole number"),
        (QWEN3_MOE, {"num_experts": None}, "num_local_experts is missing"),
        (QWEN3_MOE, {"mlp_only_layers": "1"}, "mlp_only_layers must be a list of layers, got '1'"),
        (QWEN3_MOE, {"moe_intermediate_size": None}, "moe_intermediate_size is missing"),
        (GLM4_MOE, {"n_group": 3}, "n_group must divide the 8 experts, got 3"),
        (GLM4_MOE, {"n_group": 8}, "n_group must leave groups of at least 2 of the 8 experts, got 8"),
        (GLM4_MOE, {"n_group": 2, "topk_group": 3}, "topk_group must be at most n_group 2, got 3"),
        (
            GLM4_MOE,
            {"n_group": 4, "num_experts_per_tok": 3},
            "topk_group must leave the 3 experts that a token chooses",
        ),
    ],
)
def test_counts_that_do_not_fit_are_refused_by_name(family: Family, own: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        read(family, **own)
    assert complaint in str(refusal.value)


def test_a_missing_tensor_of_an_expert_and_one_too_many_are_named(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "mixtral")
    (file,) = tmp_path.glob("*.safetensors")
    tensors, name = load_file(file), "model.layers.1.block_sparse_moe.experts.{}.w2.weight"
    save_file({each: tensor for each, tensor in tensors.items() if each != name.format(3)}, file)
    with pytest.raises(InvalidConfig, match=f"tensor {name.format(3)} is missing from the weights"):
        twin.decoder()
    save_file(tensors | {name.format(5): torch.zeros(32, 56)}, file)
    with pytest.raises(InvalidConfig, match=f"tensor {name.format(5)} has no place in MixtralForCausalLM"):
        twin.decoder()


def test_parameters_are_counted_over_all_experts(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "glm4-moe")
    stored = sum(parameter.numel() for parameter in twin.reference.parameters())
    corrections = sum(bool(layer.feed_forward.experts) for layer in twin.config.layers) * 8
    assert num_parameters(twin.config) == stored + corrections


def test_layers_that_guess_further_tokens_are_left_out(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "glm4-moe", num_nextn_predict_layers=1)
    (file,) = tmp_path.glob("*.safetensors")
    tensors = load_file(file)
    save_file(tensors | {"model.layers.3.enorm.weight": torch.zeros(32)}, file)
    twin.decoder()
    save_file(tensors | {"model.layers.4.enorm.weight": torch.zeros(32)}, file)
    with pytest.raises(InvalidConfig, match=r"tensor model\.layers\.4\.enorm\.weight has no place"):
        twin.decoder()


def test_ranks_and_fp8_are_refused_with_the_way_out() -> None:
    config = read(QWEN3_MOE)
    check_cuts(config, 1)
    with pytest.raises(
        InvalidConfig, match=r"tensor_parallel 2: experts are not cut into parts; use --tensor-parallel 1"
    ):
        check_cuts(config, 2)
    with pytest.raises(InvalidConfig, match="quantize fp8: experts are not kept in fp8; use --quantize none"):
        pick_quantize("fp8", "auto", "triton", config)
