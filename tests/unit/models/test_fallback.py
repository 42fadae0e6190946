"""Who computes a model, and what is refused before anything of transformers is imported."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from chairlift.config.model_words import AUTO, OWN, TRANSFORMERS
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.files.hf import load_hf
from chairlift.models.source import Source, embedded_path, load_model_config

GPT2 = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4,
    "vocab_size": 97, "n_positions": 128, "torch_dtype": "float16", "eos_token_id": 3,
}  # fmt: skip
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 56, "vocab_size": 97, "max_position_embeddings": 128,
}  # fmt: skip


def write(folder: Path, values: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def test_a_model_without_a_declaration_is_left_to_transformers_with_one_line(tmp_path: Path) -> None:
    config = load_hf(write(tmp_path, GPT2), AUTO)
    assert config.fallback is not None
    assert (config.architecture, config.hidden_size, config.max_model_len) == ("GPT2LMHeadModel", 32, 128)
    assert (config.vocab_size, config.dtype, config.eos_ids) == (97, "float16", (3,))
    (line,) = config.warnings
    assert line.endswith("GPT2LMHeadModel is not one of our models: transformers computes it, slower than ours are")


def test_a_declared_model_is_ours_unless_transformers_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, LLAMA)
    assert load_hf(tmp_path, AUTO) == load_hf(tmp_path, OWN)
    asked = load_hf(tmp_path, TRANSFORMERS)
    assert asked.fallback is not None
    assert asked.warnings == ()


def test_ours_alone_refuses_others_and_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"'GPT2LMHeadModel' is not supported; .*--model-impl transformers may"):
        load_hf(write(tmp_path, GPT2), OWN)


def test_without_transformers_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InvalidConfig, match=r"'GPT2LMHeadModel' .*: pip install 'chairlift\[transformers\]'"):
        load_hf(write(tmp_path, GPT2), AUTO)
    with pytest.raises(InvalidConfig, match=r"--model-impl transformers needs transformers: pip install"):
        load_hf(write(tmp_path, LLAMA), TRANSFORMERS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layer_types": ["full_attention", "linear_attention"]}, "layer_types has 'linear_attention' layers"),
        ({"layer_types": ["chunked_attention", "full_attention"]}, "layer_types has 'chunked_attention' layers"),
        ({"layers_block_type": ["mamba", "attention"]}, "layers_block_type has 'mamba' layers"),
        ({"ssm_state_size": 16}, "ssm_state_size tells of recurrent layers"),
        ({"conv_L_cache": 3}, "conv_L_cache tells of recurrent layers"),
        ({"num_kv_shared_layers": 4}, "num_kv_shared_layers is 4: layers share keys and values"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is true"),
        ({"text_config": {"hidden_size": 8}}, "text_config is of a model of text and more"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config is for our own models"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"n_positions": None}, "max_position_embeddings is missing"),
        ({"n_embd": "many"}, "n_embd must be a positive whole number"),
    ],
)
def test_what_pages_do_not_hold_is_refused_by_name(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        load_hf(write(tmp_path, GPT2 | change), AUTO)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"exact": True}, "exact: transformers computes this model, .*; leave --exact out"),
        ({"tensor_parallel": 2}, "tensor_parallel 2: .*; leave --tensor-parallel out"),
        ({"quantize": "int8"}, "quantize int8: .*; use --quantize none"),
        ({"kv_dtype": "int8"}, "kv_dtype int8: .*; use --kv-dtype auto"),
        ({"device": "mindspore"}, "device mindspore: .*; use --device cpu or cuda"),
    ],
)
def test_what_only_our_models_do_is_refused_with_the_way_out(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    source = Source("folder", write(tmp_path, GPT2), "one")
    with pytest.raises(InvalidConfig, match=words):
        load_model_config(source, Settings(**change))


def test_transformers_takes_folders_alone() -> None:
    source = Source("gguf", embedded_path(), "one")
    with pytest.raises(InvalidConfig, match="model_impl transformers: .* is no folder with config.json"):
        load_model_config(source, Settings(model_impl="transformers"))
