"""The fingerprint of an exact engine depends on its bits alone."""

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from chairlift.config.settings import Settings
from chairlift.models.source import Source, load_model_config
from chairlift.runner.native.ops import available
from chairlift.runner.start.load import load_runner
from fakes.tiny_model import write_tiny_model

KERNELS = ["torch", pytest.param("native", marks=pytest.mark.skipif(not available(), reason="no native kernels"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model")


def bits(folder: Path, **changes: object) -> str | None:
    source = Source("folder", folder, "tiny")
    settings = Settings(
        **{"device": "cpu", "dtype": "float32", "threads": 2, "exact": True, "kv_memory": 1 << 22, **changes}
    )
    return load_runner(settings, source, load_model_config(source)).fingerprint


@pytest.mark.parametrize("kernels", KERNELS)
def test_it_does_not_depend_on_the_limits(folder: Path, kernels: str) -> None:
    first = bits(folder, kernels=kernels)
    assert first is not None and len(first) == 8
    assert bits(folder, kernels=kernels) == first
    assert bits(folder, kernels=kernels, threads=1, max_running=3, max_step_tokens=77, kv_memory=1 << 23) == first
    assert bits(folder, kernels=kernels, max_step_tokens=13, block_size=4) == first


def test_the_smallest_engine_has_one_too(folder: Path) -> None:
    assert bits(folder, max_model_len=1, num_blocks=1, block_size=1, kv_memory=None) is not None


@pytest.mark.parametrize("kernels", KERNELS)
def test_it_changes_with_the_least_bit_of_a_weight(folder: Path, kernels: str) -> None:
    first = bits(folder, kernels=kernels)
    weights = load_file(folder / "model.safetensors")
    value = weights["model.layers.0.self_attn.k_proj.weight"][3, 5:6]
    value.copy_(value.nextafter(value + 1))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert bits(folder, kernels=kernels) != first


def test_without_exact_there_is_none(folder: Path) -> None:
    assert bits(folder, exact=False) is None
