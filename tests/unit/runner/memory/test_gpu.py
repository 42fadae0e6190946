"""A model is loaded on a fake GPU."""

from dataclasses import replace

import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.models.spec import uniform_model
from chairlift.runner.cuda.step.graph_key import MAX_GRAPHS
from chairlift.runner.kernels import check_exact, pick_kernels
from chairlift.runner.memory.gpu import GpuMemory
from fakes.gpu import GIB, MIB, FakeGpu, maker

CUDA = torch.device("cuda")
LLAMA_7B = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=4096, num_layers=32, num_heads=32, num_kv_heads=32, head_dim=128,
    intermediate_size=11008, vocab_size=32000, max_model_len=4096, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip
LIMITS = Limits(
    vocab_size=32000, max_model_len=4096, block_size=16, num_blocks=1, max_running=512, max_step_tokens=4096
)
BLOCK = 8 * MIB


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    found = FakeGpu()
    found.install(monkeypatch)
    return found


def test_others_weights_and_serving_are_counted_apart(gpu: FakeGpu) -> None:
    memory = GpuMemory(CUDA, 0.9)
    gpu.taken += 13 * GIB  # the weights
    gpu.cached += GIB  # left over from reading them
    budget, limits, num_graphs = memory.measure(maker(gpu, [], token_bytes=MIB // 2, graph_bytes=2 * MIB), LIMITS)
    assert (budget.total, budget.others, budget.weights) == (24 * GIB, GIB, 13 * GIB)
    assert (budget.activations, budget.graphs) == (2 * GIB, 2 * 2 * MIB + MAX_GRAPHS * ((9 * 2 + 2) * MIB // 9))
    assert limits is LIMITS and num_graphs == MAX_GRAPHS
    assert gpu.free == 10 * GIB, "nothing is held that is not needed"
    num_blocks = budget.num_blocks_within(0.9, BLOCK, limits, num_tensors=64)
    left = 24 * GIB - int(24 * GIB * 0.1) - 16 * GIB - budget.graphs - 128 * MIB
    assert abs(num_blocks - left // BLOCK) <= 1


def test_memory_of_an_earlier_model_does_not_count(gpu: FakeGpu) -> None:
    gpu.cached = 5 * GIB
    budget, *_ = GpuMemory(CUDA, 0.9).measure(maker(gpu, []), LIMITS)
    assert (budget.others, budget.weights) == (GIB, 0)


def test_other_programs_count(gpu: FakeGpu) -> None:
    gpu.taken = 9 * GIB
    memory = GpuMemory(CUDA, 0.9)
    gpu.taken += 10 * GIB
    budget, limits, _ = memory.measure(maker(gpu, [], token_bytes=MIB // 8), LIMITS)
    assert budget.others == 9 * GIB
    assert budget.num_blocks_within(0.9, BLOCK, limits, 0) * BLOCK <= (0.9 * 24 - 19 - 0.5) * GIB


def test_a_step_that_takes_too_much_is_made_smaller_with_a_warning(
    gpu: FakeGpu, caplog: pytest.LogCaptureFixture
) -> None:
    memory = GpuMemory(CUDA, 0.9)
    _, limits, _ = memory.measure(maker(gpu, [], token_bytes=8 * MIB), LIMITS)
    assert limits == replace(LIMITS, max_step_tokens=1024)
    assert "max_step_tokens is 1024; lower --max-model-len" in caplog.text


def test_where_there_is_room_for_few_graphs_it_is_said(gpu: FakeGpu, caplog: pytest.LogCaptureFixture) -> None:
    memory = GpuMemory(CUDA, 0.9)
    gpu.taken += 20 * GIB
    make = maker(gpu, [], token_bytes=MIB // 16, graph_bytes=MIB)
    budget, _, num_graphs = memory.measure(make, LIMITS)
    assert num_graphs == int(0.6 * 1024 / 10 / ((9 + 2) / 9))
    assert budget.graphs == 2 * MIB + num_graphs * ((9 + 2) * MIB // 9)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"memory for 50 captured steps instead of {MAX_GRAPHS}" in line and "--memory" in line


@pytest.mark.parametrize(
    ("dtype", "quantize", "need", "way"),
    [
        (torch.float32, "none", "25.1", "use --dtype bfloat16, a smaller model or --device cpu"),
        (torch.bfloat16, "none", "12.6", "use --quantize fp8, a smaller model or --device cpu"),
        (torch.bfloat16, "fp8", "6.5", "use a smaller model or --device cpu"),
    ],
)
def test_weights_that_cannot_fit_are_refused_before_they_are_read(
    gpu: FakeGpu, dtype: torch.dtype, quantize: str, need: str, way: str
) -> None:
    gpu.total = 6 * GIB
    with pytest.raises(InvalidConfig) as caught:
        GpuMemory(CUDA, 0.9).check_weights(LLAMA_7B, dtype, quantize)
    message = str(caught.value)
    assert f"the weights need {need} GiB" in message and "leaves 4.4 (1.0 are in use)" in message
    assert message.endswith(way) and "\n" not in message


def test_weights_that_fit_are_not(gpu: FakeGpu) -> None:
    GpuMemory(CUDA, 0.9).check_weights(LLAMA_7B, torch.bfloat16, "none")


@pytest.mark.parametrize("kernels", ["auto", "triton"])
def test_a_gpu_that_is_too_old_is_refused_with_ways_out(gpu: FakeGpu, kernels: str) -> None:
    gpu.capability = (7, 5)
    with pytest.raises(InvalidConfig) as caught:
        pick_kernels(kernels, CUDA, torch.float16)
    assert str(caught.value) == (
        f"kernels {kernels}: this GPU has compute capability 7.5 and our kernels are for 8.0 (Ampere) or above; "
        "use --kernels torch or --device cpu"
    )
    assert pick_kernels("torch", CUDA, torch.float16) == "torch"


def test_exact_is_refused_where_torch_computes_on_a_gpu() -> None:
    with pytest.raises(InvalidConfig, match=r"^exact: .*; use --kernels triton or --device cpu, or leave --exact out$"):
        check_exact("torch", CUDA)
    check_exact("torch", torch.device("cpu"))
    check_exact("triton", CUDA)
