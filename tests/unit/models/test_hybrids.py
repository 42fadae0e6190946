"""Configurations of hybrids: published shapes, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.core.memory.pages import pages_of
from chairlift.models.files.hf import load_values
from chairlift.models.kv_groups import Sizes, kv_groups
from chairlift.models.shards import Rank, shard
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import num_parameters
from chairlift.runner import kernels
from fakes.family_configs import CONFIGS

ROPE = {
    "mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25, "rope_theta": 1e7,
    "rope_type": "default",
}  # fmt: skip
SMALL: dict[str, Any] = {  # Qwen3.5-0.8B
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 1024, "head_dim": 256,
    "intermediate_size": 3584, "num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2,
    "vocab_size": 248320, "max_position_embeddings": 262144, "tie_word_embeddings": True, "rope_parameters": ROPE,
    "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "hidden_act": "silu",
    "mamba_ssm_dtype": "float32", "attn_output_gate": True, "output_gate_type": "swish",
}  # fmt: skip
LARGE = SMALL | {  # Qwen3.8-27B
    "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64, "num_attention_heads": 24,
    "num_key_value_heads": 4, "linear_num_value_heads": 48, "tie_word_embeddings": False,
}  # fmt: skip
SPARSE = {key: value for key, value in SMALL.items() if key != "intermediate_size"} | {  # Qwen3.6-35B-A3B
    "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "hidden_size": 2048,
    "num_hidden_layers": 40, "num_attention_heads": 16, "linear_num_value_heads": 32, "tie_word_embeddings": False,
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
}  # fmt: skip


def read(values: dict[str, Any]) -> ModelConfig:
    return load_values(Path("config.json"), values, Path("no folder"))


@pytest.mark.parametrize(("values", "count"), [(SMALL, 752_393_024), (LARGE, 26_895_998_464), (SPARSE, 34_660_610_688)])
def test_published_shapes_have_their_numbers_of_parameters(values: dict[str, Any], count: int) -> None:
    config = read(values)
    assert num_parameters(config) == count
    assert config.warnings == ()
    assert [bool(layer.mixer.fixed) for layer in config.layers[:8]] == [True, True, True, False] * 2


def test_a_state_of_the_largest_takes_49_pages_of_a_place() -> None:
    (group,) = kv_groups(read(LARGE), sizes=Sizes(16, 2, 0, 2, 4)).declared
    assert (group.kind, group.num_pages, group.num_tile_pages) == ("fixed", 3 * 49, 3 * 6)
    assert pages_of(16, 1, (group,)).num_decoding(16) == 1 + 2 * 3 * (49 + 6)


@pytest.mark.parametrize(("count", "num_pages"), [(2, 49), (4, 49), (8, 25)])
def test_a_rank_has_its_part_of_a_state_in_pages_of_its_own_heads(count: int, num_pages: int) -> None:
    """With twice as many ranks as heads of keys and values, pages are as large and states half."""
    parts = [shard(read(LARGE), Rank(index, count)) for index in (0, count - 1)]
    own, last = (kv_groups(part, sizes=Sizes(16, 2, 0, 2, 4)).declared for part in parts)
    assert own == last
    assert own[0].num_pages == 3 * num_pages
    whole, fixed = (config.layers[0].mixer.fixed for config in (read(LARGE), parts[0]))
    assert whole is not None and fixed is not None
    assert [count * each for each in fixed] == list(whole)


def test_the_text_of_a_model_with_images_is_read_as_the_text_alone() -> None:
    text = {key: value for key, value in SMALL.items() if key != "architectures"}
    wrapper = {
        "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text,
        "vision_config": {}, "tie_word_embeddings": True, "image_token_id": 7,
    }  # fmt: skip
    found = read(wrapper)
    assert replace(found, towers=()) == read(SMALL)
    assert "takes images too" in found.warnings[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_gate_type": "sigmoid"}, "output_gate_type"),
        ({"mamba_ssm_dtype": "bfloat16"}, "mamba_ssm_dtype"),
        ({"attn_output_gate": False}, "attn_output_gate must be true"),
        ({"linear_num_value_heads": 24}, "linear_num_value_heads must be a multiple of linear_num_key_heads 16"),
        ({"layer_types": ["linear_attention", "mamba"] * 12}, "layer_types must say linear_attention or full"),
        ({"partial_rotary_factor": 0.5, "rope_parameters": ROPE | {"partial_rotary_factor": 0.003}}, "partial_rotary"),
    ],
)
def test_what_is_not_built_is_refused_by_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        read(SMALL | changes)


def test_a_model_without_a_layer_that_keeps_all_tokens_is_refused() -> None:
    config = read(SMALL | {"layer_types": ["linear_attention"] * 24})
    with pytest.raises(InvalidConfig, match="no layer keeps all tokens"):
        kv_groups(config)


def test_what_does_not_do_states_yet_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIGS["qwen3.5"]
    monkeypatch.setattr("chairlift.runner.machine.hardware.capability", lambda _: (9, 0))
    assert kernels.pick_kernels("auto", torch.device("cuda"), torch.bfloat16, config) == "torch"
    message = "they have none for gated delta net with keys of 16 numbers and values of 24 .* use --kernels torch"
    with pytest.raises(InvalidConfig, match=message):
        kernels.pick_kernels("triton", torch.device("cuda"), torch.bfloat16, config)
    with pytest.raises(InvalidConfig, match="block_size 8: .* take 16 or 32; use --block-size 16 or --kernels torch"):
        kernels.check_tiles("triton", config, 8)
