"""FlashInfer's part in a step, with a stand-in for the library: the right pages and answers."""

import os
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from chairlift.core.ids import BlockId
from chairlift.core.plan import Chunk, StepPlan
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.cuda.attention import flashinfer_planner as planner
from chairlift.runner.cuda.attention.flashinfer import FlashKernels
from chairlift.runner.cuda.attention.flashinfer_planner import FlashPlan, FlashPlanner, page_lists
from chairlift.runner.cuda.attention.tiling import choose_tiling
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.cuda.step.host import HostPart
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.ops import Batch
from chairlift.runner.torch.ops import TorchOps
from fakes.flashinfer_library import make_library
from fakes.requests import make_request

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)
Span = tuple[int, int]  # (tokens in the cache before, tokens of the chunk)
SIZE, DIM = 4, 16


class Travelling:
    """Stands in for an event of CUDA; what is recorded must be waited for before it is recorded again."""

    is_under_way = False

    def record(self) -> None:
        assert not self.is_under_way
        self.is_under_way = True

    def synchronize(self) -> None:
        self.is_under_way = False


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in make_library([]).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "Event", Travelling)
    monkeypatch.setattr(planner, "on_host", lambda shape, dtype, device: torch.full(shape, -1, dtype=dtype))
    processors = SimpleNamespace(multi_processor_count=4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: processors)


class World:
    """Requests with shuffled blocks; steps over them are planned and answered."""

    def __init__(self, heads: int, kv_heads: int, window: int = 0) -> None:
        self.heads = heads
        self.spec = AttentionSpec(
            num_heads=heads, num_kv_heads=kv_heads, head_dim=DIM, scale=DIM**-0.5, rotation=None, window=window
        )
        self.rng, torch_rng = random.Random(1), torch.Generator().manual_seed(1)
        self.host, self.tables = HostPart(15, 64, SIZE), torch.zeros(16, 64, dtype=torch.int32)
        self.num_steps = 0
        self.free = self.rng.sample(range(500), 500)
        self.keys, self.values = (torch.randn(500, kv_heads, SIZE, DIM, generator=torch_rng) for _ in range(2))
        kernels = FlashKernels(self.spec, SIZE, torch.float32, torch.device("cpu"))
        self.planner = FlashPlanner(kernels, self.tables, 300, 8)

    def step(self, spans: list[Span], first_id: int = 0) -> tuple[StepPlan, StepInput]:
        chunks = []
        for id, (start, count) in enumerate(spans, first_id):
            end = start + count
            blocks = [BlockId(self.free.pop()) for _ in range(-(-end // SIZE))]
            request = make_request(id, range(end), 4)
            chunks.append(Chunk(request, start, count, range(end), end, (blocks,), len(blocks), (request,)))
        self.num_steps += 1
        plan = StepPlan(self.num_steps, tuple(chunks), (), sum(count for _, count in spans), 0)
        step = self.host.input_of(plan)
        for row, place, block in step.updates.tolist():
            self.tables[row, place] = block
        return plan, step

    def queries(self, count: int) -> Tensor:
        return torch.randn(count, self.heads, DIM, generator=torch.Generator().manual_seed(2))

    def wanted(self, plan: StepPlan, q: Tensor) -> Tensor:
        contexts = [chunk.start + chunk.count for chunk in plan.chunks]
        tables = torch.zeros(len(contexts), 64, dtype=torch.int32)
        for r, chunk in enumerate(plan.chunks):
            tables[r, : len(chunk.blocks)] = torch.tensor(chunk.blocks)
        starts = torch.tensor([0, *(chunk.count for chunk in plan.chunks)]).cumsum(0)
        nothing = starts[:0]
        batch = Batch(
            nothing, nothing, nothing, starts.int(), torch.tensor(contexts).int(), tables, 0, max(contexts), nothing
        )
        return TorchOps().attention(q, self.spec, self.keys, self.values, batch)

    def got(self, step: StepInput, planned: FlashPlan, q: Tensor) -> Tensor:
        """By the kernels of a step, with FlashInfer's part in it."""
        positions, table_rows = (torch.tensor(column) for column in (step.columns.positions, step.columns.table_rows))
        nothing = positions[:0]
        batch = CudaBatch(
            nothing, positions, nothing, nothing, nothing, self.tables, 0, 0, nothing, table_rows,
            choose_tiling(len(q), step.max_context, self.heads != self.keys.shape[1]), None, positions, planned,
        )  # fmt: skip
        return CudaOps().attention(q, self.spec, self.keys, self.values, batch)

    def check(self, spans: list[Span], first_id: int = 0) -> FlashPlan:
        plan, step = self.step(spans, first_id)
        q = self.queries(step.num_tokens)
        planned = self.planner.plan(step, None)
        torch.testing.assert_close(self.got(step, planned, q), self.wanted(plan, q), atol=2e-5, rtol=1e-4)
        return planned


def test_the_pages_of_every_request_are_listed_in_order() -> None:
    world = World(4, 4)
    plan, step = world.step([(9, 1), (4, 4), (0, 3)])
    table_rows, starts, lasts, firsts = page_lists(step, SIZE, None)
    assert starts.tolist() == [0, 3, 5, 6]
    assert lasts[:3].tolist() == [2, 4, 3]
    assert firsts.tolist() == [0, 1, 5, 8]
    world.planner.plan(step, None)
    assert world.planner._pages[:6].tolist() == [block for chunk in plan.chunks for block in chunk.blocks]
    assert [world.tables[row, 0] for row in table_rows[:3]] == [chunk.blocks[0] for chunk in plan.chunks]


def test_padding_is_a_request_of_one_token() -> None:
    _, step = World(4, 4).step([(9, 1), (4, 1)])
    lists = page_lists(step, SIZE, 4)
    assert lists[0, :4].tolist()[2:] == [0, 0]
    assert np.diff(lists[1]).tolist() == [3, 2, 1, 1]
    assert lists[2, :4].tolist() == [2, 1, 1, 1]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 2)])
@pytest.mark.parametrize("window", [0, 5])
def test_all_rows_of_a_mixed_step_are_answered(heads: int, kv_heads: int, window: int) -> None:
    world = World(heads, kv_heads, window=window)
    planned = world.check([(9, 1), (4, 1), (3, 6), (0, 2), (7, 1)])
    assert [(low, high) for low, high, _ in planned.parts] == [(0, 2), (2, 11)]
    world.check([(0, 5), (2, 7)], first_id=10)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 2)])
def test_a_captured_step_reads_what_each_plan_leaves_in_place(heads: int, kv_heads: int) -> None:
    world = World(heads, kv_heads)
    captured = None
    for first_id, spans in ((0, [(9, 1), (4, 1), (20, 1)]), (5, [(40, 1), (0, 1), (7, 1), (3, 1)])):
        plan, step = world.step(spans, first_id)
        assert world.planner.can_capture(step)
        planned = world.planner.plan(step, 4)
        captured = captured or planned  # a graph knows the wrapper it was captured with and nothing later
        q, out = world.queries(4), torch.full((4, heads * DIM), torch.nan)
        captured.attend(q, world.keys, world.values, out)
        want = world.wanted(plan, q[: len(spans)])
        torch.testing.assert_close(out[: len(spans)], want, atol=2e-5, rtol=1e-4)
        assert out.isfinite().all()


def test_a_step_whose_prompt_it_computes_is_not_captured() -> None:
    world = World(4, 4)
    _, step = world.step([(9, 1), (0, 2)])
    assert not world.planner.can_capture(step)
