"""What a MindFormers file says of a model."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from chairlift.config.mindformers import named_checkpoint
from chairlift.config.options.resolve import resolve
from chairlift.core.errors import InvalidConfig
from chairlift.models.files.ckpt.mindformers import as_config_json
from chairlift.models.files.hf import load_values
from chairlift.models.mixers.attention import RopeScaling
from chairlift.models.source import find_source
from chairlift.models.spec import ModelConfig
from unit.config.options.test_llm_serving import REQUIRED

LLAMA2_7B = {
    "type": "LlamaConfig", "batch_size": 1, "seq_length": 4096, "hidden_size": 4096, "num_layers": 32, "num_heads": 32,
    "vocab_size": 32000, "multiple_of": 256, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0, "ignore_token_id": -100, "compute_dtype": "float16", "param_init_type": "bfloat16",
    "rotary_dtype": "float16", "use_past": True, "scaling_factor": 1.0, "extend_method": "None", "block_size": 16,
    "num_blocks": 1024, "is_dynamic": True, "qkv_concat": False, "offset": 0, "checkpoint_name_or_path": "llama2_7b",
    "repetition_penalty": 1, "max_decode_length": 512, "top_k": 3, "top_p": 1, "do_sample": False,
}  # fmt: skip


def written(folder: Path, **changed: Any) -> Path:
    section = LLAMA2_7B | changed
    (folder / "model.yaml").write_text(yaml.safe_dump({"model": {"model_config": section, "arch": {"type": "X"}}}))
    return folder / "model.yaml"


def model(folder: Path, **changed: Any) -> ModelConfig:
    path = written(folder, **changed)
    return load_values(path, as_config_json(path), folder)


def test_a_files_llama_2_is_llama_2(tmp_path: Path) -> None:
    found = model(tmp_path)
    layer = found.layers[0]
    assert (found.architecture, found.num_layers, found.hidden_size) == ("LlamaForCausalLM", 32, 4096)
    assert (layer.attention.num_kv_heads, layer.attention.head_dim, layer.feed_forward.width) == (32, 128, 11008)
    assert (found.max_model_len, found.dtype, found.bos_id, found.eos_ids) == (4096, "bfloat16", 1, (2,))
    assert found.warnings == ()


def test_the_width_follows_from_a_factor_as_llama_2_70b_gives_it(tmp_path: Path) -> None:
    found = model(tmp_path, hidden_size=8192, num_heads=64, n_kv_heads=8, ffn_dim_multiplier=1.3, multiple_of=4096)
    assert found.layers[0].feed_forward.width == 28672
    assert found.layers[0].attention.num_kv_heads == 8


def test_a_given_width_counts(tmp_path: Path) -> None:
    assert model(tmp_path, intermediate_size=1000).layers[0].feed_forward.width == 1000


def test_biases_make_it_a_qwen_2(tmp_path: Path) -> None:
    found = model(tmp_path, qkv_has_bias=True, theta=1e6, max_position_embedding=32768, tie_word_embeddings=True)
    assert found.architecture == "Qwen2ForCausalLM"
    assert found.layers[0].attention.has_bias and found.is_tied and found.max_model_len == 32768


@pytest.mark.parametrize(
    ("changed", "theta", "scaling"),
    [
        ({"extend_method": "NTK", "scaling_factor": 4.0}, 40000.0, None),
        ({"extend_method": "PI", "scaling_factor": 2.0}, 10000.0, RopeScaling(kind="linear", factor=2.0)),
        (
            {"extend_method": "LLAMA3", "scaling_factor": {
                "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512,
            }},
            10000.0,
            RopeScaling(kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_len=512),
        ),
    ],
)  # fmt: skip
def test_a_longer_context_is_rotated_as_the_file_says(
    tmp_path: Path, changed: dict[str, Any], theta: float, scaling: RopeScaling | None
) -> None:
    rotation = model(tmp_path, **changed).layers[0].attention.rotation
    assert rotation is not None
    assert (rotation.theta, rotation.scaling) == (theta, scaling)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"type": "ChatGLM2Config"}, "type must be LlamaConfig"),
        ({"extend_method": "YARN", "scaling_factor": {}}, "extend_method must be"),
        ({"extend_method": "LLAMA3"}, "scaling_factor must be a map"),
        ({"moe_config": {"expert_num": 8}}, "moe_config with experts is not supported"),
        ({"quant": "w8a16"}, "quant is not supported"),
        ({"num_heads": "many"}, "num_heads must be a positive whole number"),
        ({"n_kv_heads": 5}, "n_kv_heads must divide num_heads 32, got 5"),
        ({"hidden_size": 4097}, "hidden_size must be a multiple of num_heads 32, got 4097"),
        ({"num_layers": 10**9}, "num_layers must be"),
        ({"param_init_type": "int8"}, "param_init_type must be one of"),
        ({"extend_method": "PI", "scaling_factor": 0.5}, "scaling_factor must be a number between 1"),
        ({"extend_method": "LLAMA3", "scaling_factor": {"factor": 8.0}}, "scaling_factor: low_freq_factor is missing"),
        ({"extend_method": "LINEAR", "scaling_factor": {"factor": 8.0, "x": 1}}, "scaling_factor: unknown key 'x'"),
        ({"num_key_value_heads": 8}, "num_key_value_heads is a key of config.json, .* make it 32, got 8"),
        ({"rope_theta": 1e6}, "rope_theta is a key of config.json, .* make it 10000.0, got 1000000.0"),
        ({"sliding_window": 128}, "sliding_window is not supported"),
    ],
)
def test_what_cannot_be_built_is_refused_by_its_key(tmp_path: Path, changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint) as refusal:
        model(tmp_path, **changed)
    assert "model.yaml" in str(refusal.value)


def test_an_unknown_key_is_named_in_a_warning(tmp_path: Path) -> None:
    (warning,) = model(tmp_path, brand_new_key=3).warnings
    assert "brand_new_key" in warning and "num_blocks" not in warning


@pytest.mark.parametrize("text", ["model_config: {num_layers: 1, num_heads: 2}", '{"num_layers": 1, "num_heads": 2}'])
def test_the_section_may_stand_alone_and_be_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    assert as_config_json(tmp_path / "m.json")["num_attention_heads"] == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "not valid YAML"),
        ("serving: {}", "no model_config"),
        ("", "no model"),
        ("{num_layers: 1, num_heads: 2, 7: 8}", "keys of model_config must be text, got 7"),
        ("model_config: {num_layers: 1, null: 8}", "keys of model_config must be text, got None"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(InvalidConfig, match=complaint):
        as_config_json(tmp_path / "m.yaml")


def test_an_llm_serving_file_leads_to_the_weights_that_its_model_file_names(tmp_path: Path) -> None:
    path = written(tmp_path, checkpoint_name_or_path="llama.ckpt")
    (tmp_path / "llm.yaml").write_text(f"model_config: {{{REQUIRED}, model_cfg_path: model.yaml}}")
    assert named_checkpoint(path) is None
    without = resolve({}, tmp_path / "llm.yaml")
    assert without.model is None
    assert "names no weights" in find_source(without, has_weights=True).warnings[-1]
    (tmp_path / "llama.ckpt").write_bytes(b"")
    settings = resolve({}, tmp_path / "llm.yaml")
    assert (settings.compat.model_cfg, settings.model) == (path, str(tmp_path / "llama.ckpt"))
    assert settings.warnings == ()
    assert resolve({"model": "org/name"}, tmp_path / "llm.yaml").model == "org/name"
