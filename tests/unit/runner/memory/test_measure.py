from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chairlift.core.limits import Limits
from chairlift.core.ports import RunnerFull
from chairlift.runner.cuda.step.graph_key import MAX_GRAPHS
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.memory.measure import largest_step, measure_footprint, steps
from chairlift.runner.torch.runner import TorchRunner
from fakes.gpu import GIB, MIB, FakeGpu, FakeGpuRunner, maker
from unit.runner.twins import CPU, make_twin

LIMITS = Limits(vocab_size=100, max_model_len=1000, block_size=16, num_blocks=1, max_running=64, max_step_tokens=2048)


def used(gpu: FakeGpu) -> int:
    return gpu.total - gpu.free


def test_the_largest_step_has_all_samples_and_all_tokens_and_reaches_the_end_of_the_context() -> None:
    plan = largest_step(LIMITS, 2048)
    assert plan.num_tokens == sum(chunk.count for chunk in plan.chunks) == 2048
    assert sum(len(chunk.samples) for chunk in plan.chunks) == 64
    assert max(chunk.start + chunk.count for chunk in plan.chunks) == 1000
    assert all(chunk.count == 1 for chunk in plan.chunks[: plan.num_decodes])
    assert plan.chunks[plan.num_decodes - 1].start == 999, "a decode's context takes memory too"
    assert {block for chunk in plan.chunks for block in chunk.blocks} == {0}


@pytest.mark.parametrize("num_tokens", [1, 2, 63, 64, 65, 999, 1000, 1001])
def test_smaller_ones_are_as_large_as_they_are_asked_to_be(num_tokens: int) -> None:
    plan = largest_step(LIMITS, num_tokens)
    assert plan.num_tokens == sum(chunk.count for chunk in plan.chunks) == num_tokens
    assert max(chunk.start + chunk.count for chunk in plan.chunks) == 1000


def test_activations_are_those_of_the_largest_step_and_samples_count() -> None:
    gpu, made = FakeGpu(), []
    found = measure_footprint(
        maker(gpu, made, token_bytes=MIB, sample_bytes=2 * MIB), LIMITS, 20 * GIB, lambda: used(gpu), gpu.release
    )
    assert found.activations == (2048 + 2 * 64) * MIB
    assert (found.graphs, found.num_tokens) == (0, 2048)
    assert [limits.num_blocks for limits in made] == [1]


def test_every_further_graph_costs_what_a_small_one_with_a_prompt_did() -> None:
    gpu = FakeGpu()
    make = maker(gpu, [], graph_bytes=3 * MIB, mixed_bytes=MIB)
    found = measure_footprint(make, LIMITS, 20 * GIB, lambda: used(gpu), gpu.release)
    each = (9 * 4 + 2) * MIB // 9  # nine of them and a piece
    assert (found.graphs, found.num_graphs) == ((3 + 4) * MIB + MAX_GRAPHS * each, MAX_GRAPHS)
    assert gpu.taken == GIB, "the runner is gone, and its graphs with it"


def test_without_room_for_prompts_every_further_graph_costs_what_one_of_decodes_did() -> None:
    gpu = FakeGpu()
    make = maker(gpu, [], graph_bytes=3 * MIB, mixed_bytes=MIB)
    limits = replace(LIMITS, max_model_len=150)
    found = measure_footprint(make, limits, 20 * GIB, lambda: used(gpu), gpu.release)
    assert found.graphs == 2 * 3 * MIB + MAX_GRAPHS * ((7 * 3 + 2) * MIB // 7)


def test_graphs_take_no_more_than_a_tenth_of_the_room() -> None:
    gpu = FakeGpu()
    make = maker(gpu, [], graph_bytes=3 * MIB, mixed_bytes=MIB)
    found = measure_footprint(make, LIMITS, 5 * GIB, lambda: used(gpu), gpu.release)
    each = (9 * 4 + 2) * MIB // 9
    assert (found.graphs, found.num_graphs) == (7 * MIB + 121 * each, 121)


def test_captured_steps_are_those_of_a_runner_for_the_step_that_fits() -> None:
    gpu, made = FakeGpu(), []
    measure_footprint(maker(gpu, made), LIMITS, 3 * GIB, lambda: used(gpu), gpu.release)
    assert [limits.max_step_tokens for limits in made] == [2048, 1024]


def test_what_capturing_gives_back_is_not_taken_from_the_graphs() -> None:
    gpu = FakeGpu()

    class Tidy(FakeGpuRunner):
        def submit(self, plan) -> None:
            if plan.num_decodes == len(plan.chunks):
                gpu.release()
            super().submit(plan)

    def make(limits: Limits) -> Tidy:
        return Tidy(gpu, limits, token_bytes=MIB, graph_bytes=3 * MIB)

    found = measure_footprint(make, LIMITS, 20 * GIB, lambda: used(gpu), gpu.release)
    assert (found.activations, found.graphs) == (2048 * MIB, 6 * MIB + MAX_GRAPHS * ((9 * 3 + 2) * MIB // 9))


def test_a_step_that_leaves_less_than_half_of_the_room_is_too_large() -> None:
    gpu = FakeGpu()
    found = measure_footprint(maker(gpu, []), LIMITS, 3 * GIB, lambda: used(gpu), gpu.release)
    assert (found.num_tokens, found.activations) == (1024, GIB)


def test_a_step_that_does_not_fit_at_all_is_too_large() -> None:
    gpu = FakeGpu(total=2 * GIB)
    found = measure_footprint(maker(gpu, [], token_bytes=4 * MIB), LIMITS, 20 * GIB, lambda: used(gpu), gpu.release)
    assert (found.num_tokens, found.activations) == (256, GIB)


def test_a_real_runner_can_be_measured(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "qwen3-qk-norm")
    decoder, made = twin.decoder(), []

    def make(limits: Limits) -> TorchRunner:
        made.append(limits)
        return TorchRunner(decoder, KvCache(twin.config, limits.num_blocks, limits.block_size, torch.float32, CPU), CPU)

    limits = Limits(vocab_size=97, max_model_len=128, block_size=16, num_blocks=9, max_running=5, max_step_tokens=300)
    found = measure_footprint(make, limits, GIB, lambda: 0, lambda: None)
    assert (found.activations, found.graphs, found.num_tokens) == (0, 0, 300)
    assert [limits.num_blocks for limits in made] == [1]


def test_when_no_step_fits_it_is_said() -> None:
    gpu = FakeGpu(total=GIB)
    with pytest.raises(RunnerFull, match="not even a step of one token"):
        measure_footprint(maker(gpu, []), LIMITS, 20 * GIB, lambda: used(gpu), gpu.release)


def test_graphs_that_cannot_be_captured_are_not_counted_on() -> None:
    gpu = FakeGpu()

    class NoGraphs(FakeGpuRunner):
        def submit(self, plan) -> None:
            if plan.num_decodes == len(plan.chunks):
                raise RunnerFull("CUDA out of memory")
            super().submit(plan)

    found = measure_footprint(lambda limits: NoGraphs(gpu, limits), LIMITS, 20 * GIB, lambda: used(gpu), gpu.release)
    assert (found.graphs, found.num_graphs) == (0, 0)


def test_short_contexts_bound_a_step() -> None:
    gpu, made = FakeGpu(), []
    limits = Limits(vocab_size=9, max_model_len=4, block_size=4, num_blocks=1, max_running=3, max_step_tokens=500)
    assert measure_footprint(maker(gpu, made), limits, 20 * GIB, lambda: used(gpu), gpu.release).num_tokens == 12


def test_where_steps_may_have_adapters_twice_as_many_are_captured_and_those_with_one_are_measured() -> None:
    gpu, limits = FakeGpu(), replace(LIMITS, num_adapter_slots=4)
    captured = steps(limits)[2:]
    assert captured and all(plan.adapters for plan in captured)
    assert not any(plan.adapters for plan in steps(LIMITS))
    found = measure_footprint(maker(gpu, [], graph_bytes=MIB), limits, 20 * GIB, lambda: used(gpu), gpu.release)
    assert found.num_graphs == 2 * MAX_GRAPHS
