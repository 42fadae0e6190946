"""Adapters are read by their headers alone, and what cannot be served is refused by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from chairlift.core.errors import InvalidConfig
from chairlift.models.adapters.adapter import read_adapter
from chairlift.models.files.hf import load_hf
from chairlift.models.spec import ModelConfig
from fakes.adapters import SHAPES, adapter_tensors, write_adapter
from fakes.tiny_model import HEAD_DIM, HEADS, KV_HEADS, write_tiny_model


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    return load_hf(write_tiny_model(tmp_path_factory.mktemp("model")))


def test_every_linear_module_has_its_place(config: ModelConfig, tmp_path: Path) -> None:
    parts = read_adapter(write_adapter(tmp_path, rank=4), config, 64).parts
    assert len(parts) == config.num_layers * len(SHAPES)
    assert [(part.place.role, part.place.first) for part in parts[:7]] == [
        ("qkv", 0), ("qkv", HEADS * HEAD_DIM), ("qkv", (HEADS + KV_HEADS) * HEAD_DIM), ("output", 0),
        ("gate_up", 0), ("gate_up", 96), ("down", 0),
    ]  # fmt: skip
    assert {(part.rank, part.factor) for part in parts} == {(4, 2.0)}


def test_patterns_and_rslora_give_ranks_and_factors(config: ModelConfig, tmp_path: Path) -> None:
    tensors = adapter_tensors(1, 4, ("self_attn.q_proj",)) | adapter_tensors(1, 9, ("mlp.down_proj",))
    patterns = {"rank_pattern": {"down_proj": 9}, "alpha_pattern": {r"layers\.1\.mlp\.down_proj": 6}}
    write_adapter(tmp_path, rank=4, lora_alpha=4, use_rslora=True, **patterns)
    save_file(tensors, str(tmp_path / "adapter_model.safetensors"))
    found = {part.module: (part.rank, part.factor) for part in read_adapter(tmp_path, config, 64).parts}
    assert found["model.layers.0.self_attn.q_proj"] == (4, 2.0)
    assert found["model.layers.0.mlp.down_proj"] == (9, pytest.approx(4 / 3))
    assert found["model.layers.1.mlp.down_proj"] == (9, 2.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"use_dora": True}, "use_dora: DoRA"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias"),
        ({"lora_bias": True}, "lora_bias"),
        ({"target_parameters": ["mlp.experts"]}, "target_parameters"),
        ({"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"peft_type": "IA3"}, "peft_type must be LORA"),
        ({"r": 0}, "r must be a positive"),
        ({"rank_pattern": {"q_proj": 0}}, "rank_pattern"),
        ({"rank_pattern": {"(": 2}}, "rank_pattern"),
        ({"note": "x" * 2**20}, "the most is 1048576"),
        ({"rank_pattern": {r"(\w|\.|layers|[a-z_.0-9])*(\w|\.)*!": 8}}, "rank_pattern"),
        ({"rank_pattern": {"(l|l)(a|a)(y|y)(e|e)(r|r)(s|s)(.|.)(0|0)(.|.)": 8}}, "rank_pattern"),
        ({"rank_pattern": {"(l.*).*q": 8}}, "one `.*`"),
        ({"rank_pattern": {f"{index}.*q": 8 for index in range(65)}}, "65 patterns with `.*`"),
        ({"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern"),
        ({"use_new_thing": True}, "use_new_thing is not understood"),
        ({"r": 5}, "shape"),
    ],
)
def test_configurations_that_are_not_built_are_refused_by_name(
    changes: dict[str, Any], named: str, config: ModelConfig, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        read_adapter(write_adapter(tmp_path, **changes), config, 64)
    assert named in str(refused.value) and "\n" not in str(refused.value)


Q = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("name", "shape", "named"),
    [
        ("base_model.model.model.embed_tokens.lora_embedding_A", (4, 8), "embedding"),
        (f"{Q}.lora_magnitude_vector", (64,), "DoRA"),
        (f"{Q}.lora_B.bias", (64,), "biases"),
        ("base_model.model.lm_head.modules_to_save.weight", (4, 4), "whole matrices"),
        ("base_model.model.lm_head.lora_A.weight", (4, 64), "of the head"),
        ("base_model.model.model.visual.blocks.0.attn.qkv.lora_A.weight", (4, 64), "images or sound"),
        (Q.replace("0", "7") + ".lora_A.weight", (4, 64), "no place"),
        (f"{Q}.lora_A.weight", (4, 65), "shape [4, 65]"),
        ("strange", (1,), "no place"),
    ],
)
def test_tensors_that_are_not_understood_are_refused_by_name(
    name: str, shape: tuple[int, ...], named: str, config: ModelConfig, tmp_path: Path
) -> None:
    write_adapter(tmp_path)
    save_file(adapter_tensors(1, 4) | {name: np.zeros(shape, np.float32)}, str(tmp_path / "adapter_model.safetensors"))
    with pytest.raises(InvalidConfig) as refused:
        read_adapter(tmp_path, config, 64)
    assert named in str(refused.value) and name in str(refused.value)


def test_a_half_of_a_pair_a_large_rank_and_other_files_are_refused(config: ModelConfig, tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    with pytest.raises(InvalidConfig, match="rank 4, the most is 2; --max-lora-rank"):
        read_adapter(folder, config, 2)
    tensors = adapter_tensors(1, 4)
    del tensors[f"{Q}.lora_B.weight"]
    save_file(tensors, str(folder / "adapter_model.safetensors"))
    with pytest.raises(InvalidConfig, match=r"lora_B.weight is missing"):
        read_adapter(folder, config, 64)
    (folder / "adapter_model.safetensors").write_bytes(b"\xff" * 40)
    with pytest.raises(InvalidConfig, match="not a readable safetensors"):
        read_adapter(folder, config, 64)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(InvalidConfig, match="pickle"):
        read_adapter(folder, config, 64)
    (folder / "adapter_config.json").unlink()
    with pytest.raises(InvalidConfig, match=r"no adapter_config.json"):
        read_adapter(folder, config, 64)


def test_unread_keys_of_training_are_no_mistake(config: ModelConfig, tmp_path: Path) -> None:
    full = {"lora_dropout": 0.1, "init_lora_weights": "gaussian", "layers_pattern": None, "loftq_config": {}}
    assert read_adapter(write_adapter(tmp_path, **full), config, 64).parts
    assert json.loads((tmp_path / "adapter_config.json").read_text())["lora_dropout"] == 0.1
