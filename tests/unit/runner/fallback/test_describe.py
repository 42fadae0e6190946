"""What is found of a model without its weights, and what is refused then."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.masking_utils import (
    causal_mask_function,
    chunked_causal_mask_function,
    sliding_window_causal_mask_function,
)

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.fallback import read_fallback
from chairlift.models.spec import ModelConfig
from chairlift.runner.fallback import library
from chairlift.runner.fallback.describe import describe, window_of
from unit.runner.fallback.families import make_twin
from unit.runner.twins import SHAPE


def config_of(model_type: str, architecture: str, **keys: Any) -> ModelConfig:
    values = {"model_type": model_type, **SHAPE, **keys}
    return read_fallback(Fields("config.json", values), architecture)


@pytest.mark.parametrize("family", ["gpt2", "olmoe", "gpt_oss", "gemma4_text"])
def test_parameters_are_as_many_as_the_model_has(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    found = describe(twin.config, is_padded=False)
    assert found.fallback is not None
    assert found.fallback.num_parameters == sum(p.numel() for p in twin.reference.parameters())


def test_layers_tell_heads_scale_window_cap_and_sinks(tmp_path: Path) -> None:
    first, second = (layer.attention for layer in describe(make_twin(tmp_path, "gpt_oss").config, False).layers)
    assert (first.num_heads, first.num_kv_heads, first.head_dim, first.scale) == (4, 2, 16, 0.25)
    assert (first.window, second.window, first.has_sinks) == (9, 0, True)
    capped, _ = (
        layer.attention for layer in describe(make_twin(tmp_path / "other", "vaultgemma").config, False).layers
    )
    assert (capped.cap, capped.has_sinks) == (5.0, False)


def test_heads_are_as_wide_as_the_widest_of_a_layer_and_padded_for_kernels(tmp_path: Path) -> None:
    config = make_twin(tmp_path, "deepseek_v3").config  # keys of 24, values of 12
    assert {layer.attention.head_dim for layer in describe(config, is_padded=False).layers} == {24}
    assert {layer.attention.head_dim for layer in describe(config, is_padded=True).layers} == {32}


@pytest.mark.parametrize(
    ("model_type", "architecture", "keys", "words"),
    [
        ("falcon", "FalconForCausalLM", {}, "its attention cannot be replaced"),
        ("hill", "HillForCausalLM", {}, "has no model_type 'hill', and code of a model's folder is not run"),
        ("bert", "BertForMaskedLM", {}, "not a causal model of transformers"),
        ("bert", "BertLMHeadModel", {}, "its mask is neither causal nor causal with a window"),
        ("qwen3_next", "Qwen3NextForCausalLM", {}, "layer_types has 'linear_attention' layers"),
        ("falcon_h1", "FalconH1ForCausalLM", {}, "tells of recurrent layers"),
        ("mamba", "MambaForCausalLM", {}, "state_size tells of recurrent layers"),
        ("gemma3n_text", "Gemma3nForCausalLM", {}, "num_kv_shared_layers is 15"),
        ("nemotron", "NemotronForCausalLM", {"head_dim": 8}, "do not hand keyword arguments down"),
        ("doge", "DogeForCausalLM", {}, "changes its mask on the way"),
        ("llama", "LlamaForCausalLM", {"num_attention_heads": 5}, "LlamaForCausalLM: "),
    ],
)
def test_what_cannot_be_computed_in_pages_is_refused_by_name(
    model_type: str, architecture: str, keys: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidConfig, match=words) as refused:
        describe(config_of(model_type, architecture, **keys), is_padded=False)
    assert "\n" not in str(refused.value)


def test_what_an_attention_call_says_and_is_not_understood_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_twin(tmp_path, "gpt2").config
    plain = transformers.GPT2Model.forward
    monkeypatch.setattr(
        transformers.GPT2Model, "forward", lambda self, *args, **more: plain(self, *args, **more, slope=0.5)
    )
    with pytest.raises(InvalidConfig, match="GPT2LMHeadModel: .*: its attention takes slope, which is not understood"):
        describe(config, is_padded=False)


def test_a_version_that_was_not_tested_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_twin(tmp_path, "gpt2").config
    monkeypatch.setattr(library.transformers, "__version__", "4.57.1")
    with pytest.raises(InvalidConfig, match=r"transformers 4.57.1 is not .*: pip install 'chairlift\[transformers\]'"):
        describe(config, is_padded=False)


def test_a_window_is_read_from_the_mask() -> None:
    assert window_of(causal_mask_function, 1000) == 0
    assert window_of(sliding_window_causal_mask_function(7), 1000) == 7
    assert window_of(sliding_window_causal_mask_function(1000), 1000) == 0
    with pytest.raises(ValueError, match="neither causal"):
        window_of(chunked_causal_mask_function(300, torch.zeros(1, dtype=torch.int64)), 1000)
    with pytest.raises(ValueError, match="neither causal"):
        window_of(lambda batch, head, query, key: key >= 0, 1000)


def test_the_description_is_of_all_that_the_file_says() -> None:
    config = config_of("llama", "LlamaForCausalLM", rope_theta=5.0)
    assert config.fallback is not None
    assert json.loads(config.fallback.config_json)["rope_theta"] == 5.0
