"""quantization_config: files as makers write them, and what is refused by its key."""

import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.files.hf import load_hf
from chairlift.models.files.quantisation import read_quantisation
from chairlift.models.spec import Quantisation
from unit.models.files.test_hf import write

AWQ = {
    "bits": 4, "group_size": 128, "modules_to_not_convert": None, "quant_method": "awq", "version": "gemm",
    "zero_point": True,
}  # fmt: skip
GPTQ = {
    "bits": 4, "damp_percent": 0.01, "desc_act": True, "group_size": 128, "model_file_base_name": "model",
    "model_name_or_path": None, "quant_method": "gptq", "static_groups": False, "sym": True, "true_sequential": True,
}  # fmt: skip
FP8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
WEIGHTS = {
    "actorder": None, "block_structure": None, "dynamic": False, "group_size": 128, "num_bits": 4, "observer": "minmax",
    "observer_kwargs": {}, "strategy": "group", "symmetric": True, "type": "int",
}  # fmt: skip
GROUP = {"input_activations": None, "output_activations": None, "targets": ["Linear"], "weights": WEIGHTS}
WORDS = {
    "config_groups": {"group_0": GROUP}, "format": "pack-quantized", "global_compression_ratio": 1.8,
    "ignore": ["lm_head", "re:.*gate$"], "kv_cache_scheme": None, "quant_method": "compressed-tensors",
    "quantization_status": "compressed", "sparsity_config": {}, "transform_config": {}, "version": "0.11.0",
}  # fmt: skip
MODELOPT = {
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["a"]}},
    "ignore": ["lm_head"], "quant_algo": "NVFP4", "producer": {"name": "modelopt", "version": "0.33"},
    "quant_method": "modelopt", "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
}  # fmt: skip
NF4 = {
    "_load_in_4bit": True, "_load_in_8bit": False, "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
    "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False, "llm_int8_skip_modules": ["lm_head"],
    "llm_int8_threshold": 6.0, "load_in_4bit": True, "load_in_8bit": False, "quant_method": "bitsandbytes",
}  # fmt: skip


def read(given: Any) -> Quantisation | None:
    return read_quantisation(Fields("config.json", {"quantization_config": given}), ())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (AWQ, Quantisation(method="awq", bits=4, group=128, integers=(4, 128))),
        (
            {"quant_method": "awq", "w_bit": 4, "q_group_size": 64},
            Quantisation(method="awq", bits=4, group=64, integers=(4, 64)),
        ),
        (GPTQ, Quantisation(method="gptq", bits=4, group=128, integers=(4, 128))),
        (
            GPTQ | {"group_size": -1, "checkpoint_format": "gptq_v2"},
            Quantisation(method="gptq", bits=4, adds_one=False, integers=(4, 0)),
        ),
        (GPTQ | {"dynamic": {"-:.*down_proj": {}}}, Quantisation(method="gptq", integers=(4, 128))),
        (FP8, Quantisation(method="fp8", floats="FP8")),
        (FP8 | {"weight_block_size": [64, 32]}, Quantisation(method="fp8", block=(64, 32), floats="FP8")),
        (WORDS, Quantisation(method="compressed-tensors", bits=4, group=128, integers=(4, 128))),
        (  # a list that names nothing, and a newer version: the tensors decide
            WORDS | {"ignore": ["re:.*no_such_module$"], "version": "9.0"},
            Quantisation(method="compressed-tensors", bits=4, group=128, integers=(4, 128)),
        ),
        (
            WORDS | {"config_groups": {"a": GROUP, "b": GROUP | {"weights": WEIGHTS | {"num_bits": 8}}}},
            Quantisation(method="compressed-tensors", integers=(8, 128)),
        ),
        (MODELOPT, Quantisation(method="modelopt", floats="NVFP4")),
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}, Quantisation(method="modelopt", floats="FP8")),
        (NF4, Quantisation(method="bitsandbytes", floats="NF4")),
    ],
)  # fmt: skip
def test_files_as_makers_write_them(given: Any, expected: Quantisation | None) -> None:
    assert read(given) == expected


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("awq", "quantization_config must be a map, got 'awq'"),
        ({}, r"quantization_config \(unnamed\) is not supported; take one of awq, fp8"),
        ({"quant_method": "quark"}, r"quantization_config \(quark\) is not supported"),
        (AWQ | {"version": "gemv"}, "version must be 'gemm' or 'GEMM', got 'gemv'"),
        (AWQ | {"bits": 3}, "bits must be 4, got 3"),
        (AWQ | {"rotation": "hadamard"}, "rotation is not understood and may change the numbers, got 'hadamard'"),
        (GPTQ | {"checkpoint_format": "gptq_p"}, "checkpoint_format must be 'gptq' or 'gptq_v2', got 'gptq_p'"),
        (GPTQ | {"bits": 5}, "bits must be 2 or 3 or 4 or 8, got 5"),
        (GPTQ | {"group_size": "128"}, "group_size must be -1 or a whole number, got '128'"),
        (FP8 | {"fmt": "e5m2"}, "fmt must be 'e4m3'"),
        (FP8 | {"weight_block_size": [128]}, "weight_block_size must be two whole numbers above 0"),
        (FP8 | {"moe_quant_algo": "NVFP4"}, "moe_quant_algo must be"),
        (WORDS | {"format": "marlin-24"}, "format must be 'pack-quantized'"),
        (WORDS | {"transform_config": {"R1": 1}}, "transform_config is not supported"),
        (WORDS | {"config_groups": {"a": GROUP | {"rotation": "R1"}}}, "config_groups: a: rotation is not understood"),
        (
            WORDS | {"config_groups": {"a": GROUP | {"weights": WEIGHTS | {"codebook": [1, 2]}}}},
            "a: weights: codebook is not understood and may change the numbers",
        ),
        (WORDS | {"config_groups": None}, "config_groups must be a map of groups"),
        (WORDS | {"config_groups": {"a": GROUP | {"output_activations": {"num_bits": 8}}}}, "output_activations"),
        (MODELOPT | {"quant_algo": "W4A8_AWQ"}, "quant_algo must be 'FP8'"),
        (NF4 | {"bnb_4bit_quant_type": "af4"}, "bnb_4bit_quant_type must be 'nf4' or 'fp4'"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_its_key(given: Any, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint) as caught:
        read(given)
    assert "\n" not in str(caught.value)


def test_a_file_beside_config_json_may_say_it(tmp_path: Path) -> None:
    write(tmp_path, {})
    apart = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(apart))
    assert load_hf(tmp_path).quantisation == Quantisation(method="modelopt", floats="FP8")
