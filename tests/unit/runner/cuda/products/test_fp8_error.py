"""The benchmark of fp8, on a tiny model in Triton's interpreter."""

import math
import os
from types import ModuleType

import pytest
import torch
from torch import Tensor

from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.weights.source import TensorSource
from fakes.benchmark import load_benchmark

pytestmark = [
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the benchmark itself can be run"),
    pytest.mark.usefixtures("fp8_rounding"),
]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return load_benchmark("gpu/fp8_error")


def test_the_distance_between_logits_is_none_to_themselves(benchmark: ModuleType) -> None:
    logits = torch.randn(5, 11)
    assert benchmark.distance(logits, logits) == benchmark.Distance(0.0, 0.0, 1.0, 0.0)


def test_the_distance_between_logits_is_measured_over_all_positions(benchmark: ModuleType) -> None:
    base = torch.tensor([[0.0, 1.0], [3.0, 0.0]])
    found = benchmark.distance(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), base)
    assert (found.most, found.mean, found.same_top) == (3.0, 1.0, 0.5)
    p, q = 1 / (1 + math.exp(-3)), 1 / (1 + math.e)
    expected = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    assert found.divergence == pytest.approx(expected / 2, rel=1e-5)


def tiny(benchmark: ModuleType) -> tuple[ModelConfig, TensorSource, Tensor]:
    config = uniform_model(
        architecture="LlamaForCausalLM", hidden_size=64, num_layers=2, num_heads=2, num_kv_heads=2, head_dim=32,
        intermediate_size=96, vocab_size=50, max_model_len=64, rms_norm_eps=1e-5, rope_theta=10000.0,
    )  # fmt: skip
    texts = torch.randint(50, (2, 12), generator=torch.Generator().manual_seed(0))
    return config, benchmark.DrawnTensors(texts.device), texts


@pytest.mark.nightly
def test_every_choice_is_compared_and_fp8_is_further_off_than_bfloat16(benchmark: ModuleType) -> None:
    config, source, texts = tiny(benchmark)
    # The interpreter multiplies no tiles of bfloat16.
    found = dict(benchmark.distances(config, source, texts, num_prompt=8, has_tiles=False))
    assert list(found) == ["float32", "--kv-dtype fp8", "--quantize fp8", "both"]
    # As far off as three bits of a number are, and no further.
    assert 0 < found["float32"].mean < found["--quantize fp8"].mean < 0.1
    assert 0 < found["--kv-dtype fp8"].mean < 0.1
    assert 0 < found["both"].divergence < 0.01


@pytest.mark.nightly
def test_the_range_of_keys_and_values_is_read_from_the_cache(benchmark: ModuleType) -> None:
    config, source, texts = tiny(benchmark)
    model = benchmark.model_of(benchmark.BASE, config, source, texts.device)
    found = benchmark.ranges(model, texts, num_prompt=8, has_tiles=False)
    for most, share in (found["keys"], found["values"]):
        assert 0.1 < most < 2 and 0.01 < share < 0.5


def test_tables_are_markdown(benchmark: ModuleType) -> None:
    assert benchmark.table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
