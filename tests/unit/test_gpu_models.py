"""The models without weights that GPU benchmarks serve are those they are named after, and so is their adapter."""

from dataclasses import replace
from pathlib import Path

import pytest

from chairlift.models.adapters.adapter import read_adapter
from chairlift.models.files.hf import load_hf
from chairlift.models.tensors import num_parameters
from fakes.benchmark import load_benchmark

MILLIONS = {
    "llama2-7b": 6_738, "llama3-8b": 8_030, "qwen3-8b": 8_191, "phi4": 14_660, "gemma3-12b": 11_766,
    "qwen3-30b-a3b": 30_532, "gpt-oss-20b": 20_915, "gemma4-26b-a4b": 25_233, "gemma4-e4b": 7_463,
}  # fmt: skip
make_models = load_benchmark("gpu/make_models")


def test_each_has_a_number_of_parameters_here() -> None:
    assert set(make_models.MODELS) == set(MILLIONS)


@pytest.mark.parametrize("name", MILLIONS)
def test_it_has_as_many_parameters_as_its_namesake(name: str, tmp_path: Path) -> None:
    assert round(num_parameters(load_hf(make_models.write_model(tmp_path, name))) / 1e6) == MILLIONS[name]


def test_an_adapter_has_all_linear_layers(tmp_path: Path) -> None:
    config = load_hf(make_models.write_model(tmp_path, "llama2-7b"))
    load_benchmark("cpu/make_adapter").write_adapter(
        tmp_path / "adapter", replace(config, layers=config.layers[:1]), 16
    )
    assert len(read_adapter(tmp_path / "adapter", config, 16).parts) == 7
