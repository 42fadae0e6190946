"""Configurations of models with latent attention as they are published, and what is refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.hf import load_hf
from chairlift.models.mixers.latent import LatentSpec
from chairlift.models.shards import check_cuts
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import num_parameters
from chairlift.runner.kernels import pick_kernels
from chairlift.runner.kv_cache import kv_bytes_per_block

YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}
V2_LITE: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": False, "aux_loss_alpha": 0.001,
    "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 10944,
    "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "moe_layer_freq": 1,
    "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": False, "num_attention_heads": 16,
    "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": None,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000,
    "rope_scaling": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}, "routed_scaling_factor": 1.0,
    "scoring_func": "softmax", "seq_aux": True, "tie_word_embeddings": False, "topk_group": 1, "topk_method": "greedy",
    "torch_dtype": "bfloat16", "v_head_dim": 128, "vocab_size": 102400,
}  # fmt: skip
V3 = V2_LITE | {
    "architectures": ["DeepseekV3ForCausalLM"], "first_k_dense_replace": 3, "hidden_size": 7168, "n_group": 8,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "norm_topk_prob": True, "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
    "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "routed_scaling_factor": 2.5,
    "rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}, "scoring_func": "sigmoid", "topk_group": 4,
    "topk_method": "noaux_tc", "vocab_size": 129280,
}  # fmt: skip
GLM_FLASH = V3 | {
    "architectures": ["Glm4MoeLiteForCausalLM"], "first_k_dense_replace": 1, "hidden_size": 2048, "n_group": 1,
    "intermediate_size": 10240, "max_position_embeddings": 202752, "moe_intermediate_size": 1536,
    "n_routed_experts": 64, "num_attention_heads": 20, "num_experts_per_tok": 4, "num_hidden_layers": 47,
    "num_key_value_heads": 20, "partial_rotary_factor": 1.0, "q_lora_rank": 768, "qk_nope_head_dim": 192,
    "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 1000000, "routed_scaling_factor": 1.8, "topk_group": 1,
    "v_head_dim": 256, "vocab_size": 154880,
}  # fmt: skip


def load(folder: Path, values: dict[str, Any], **changes: Any) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(values | changes))
    return load_hf(folder)


@pytest.mark.parametrize(
    ("values", "billions", "token_bytes", "scale"),
    [(V2_LITE, 15.706, 31_104, 0.114721), (V3, 671.03, 70_272, 0.135234), (GLM_FLASH, 29.943, 54_144, 0.0625)],
)
def test_a_published_configuration_is_read_without_a_warning(
    tmp_path: Path, values: dict[str, Any], billions: float, token_bytes: int, scale: float
) -> None:
    config = load(tmp_path, values)
    assert config.warnings == ()
    assert num_parameters(config) / 1e9 == pytest.approx(billions, rel=1e-4)
    assert kv_bytes_per_block(config, 16, torch.bfloat16) == 16 * token_bytes
    mixer = config.layers[0].mixer
    assert isinstance(mixer, LatentSpec)
    assert (mixer.scale, mixer.eps) == (pytest.approx(scale, rel=1e-5), 1e-6)


def test_long_chunks_make_keys_and_values_of_every_head(tmp_path: Path) -> None:
    mixer = load(tmp_path, V2_LITE).layers[0].mixer
    assert isinstance(mixer, LatentSpec)
    assert 170 < mixer.expands_from < 171  # 512 * (128 + 128) / (1,088 - 320)


@pytest.mark.parametrize(("values", "changes", "complaint"), [
    (V2_LITE, {"topk_method": "group_limited_greedy"}, "topk_method must be 'greedy', got 'group_limited_greedy'"),
    (V2_LITE, {"norm_topk_prob": True}, "norm_topk_prob true is not supported"),
    (V2_LITE, {"scoring_func": "sigmoid"}, "scoring_func must be 'softmax', got 'sigmoid'"),
    (V2_LITE, {"attention_bias": True}, "attention_bias true is not supported"),
    (V2_LITE, {"moe_layer_freq": 2}, "moe_layer_freq must be 1, got 2"),
    (V2_LITE, {"num_key_value_heads": 4}, "num_key_value_heads must be num_attention_heads 16, got 4"),
    (V2_LITE, {"qk_rope_head_dim": 63}, "qk_rope_head_dim must be even, got 63"),
    (V2_LITE, {"kv_lora_rank": 0}, "kv_lora_rank must be a positive whole number, got 0"),
    (V2_LITE, {"q_lora_rank": 0}, "q_lora_rank must be a positive whole number, got 0"),
    (V3, {"rope_interleave": False}, "rope_interleave must be true, got False"),
    (V3, {"n_group": 7}, "n_group must divide the 256 experts, got 7"),
    (GLM_FLASH, {"mlp_layer_types": ["sparse"] * 46 + ["dense"]}, "mlp_layer_types must name each of the 47 layers"),
])  # fmt: skip
def test_what_is_not_built_is_refused_by_name(
    tmp_path: Path, values: dict[str, Any], changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        load(tmp_path, values, **changes)
    assert complaint in str(refusal.value)


def test_what_latent_attention_lacks_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(tmp_path, V2_LITE)
    with pytest.raises(InvalidConfig, match="kv_dtype: layers of latent attention keep numbers of the model's type"):
        kv_bytes_per_block(config, 16, torch.int8)
    with pytest.raises(InvalidConfig, match=r"tensor_parallel 2: (experts|layers of latent attention) are not cut"):
        check_cuts(config, 2)
    monkeypatch.setattr("chairlift.runner.machine.hardware.capability", lambda device: (9, 0))
    cuda = torch.device("cuda")
    assert pick_kernels("auto", cuda, torch.bfloat16, config) == "torch"
    with pytest.raises(InvalidConfig, match="kernels triton: they have none for latent attention"):
        pick_kernels("triton", cuda, torch.bfloat16, config)
