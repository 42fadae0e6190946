"""FlashInfer on a real GPU: its answers are torch's, captured or not, and whole runs keep their tokens."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from chairlift.core.engine import Engine
from chairlift.core.events import Event, Preempted, PromptScored, Token
from chairlift.core.ids import BlockId
from chairlift.core.limits import Limits
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import Runner
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.cuda.attention.flashinfer import FlashKernels
from chairlift.runner.cuda.step.host import HostPart
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.kernels import make_ops, make_runner
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.ops import Batch
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.clocks import CountingClock
from fakes.requests import make_request

pytest.importorskip("flashinfer", exc_type=ImportError)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),  # the first one waits for the compiler
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

SHAPE: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "hidden_size": 512, "num_layers": 3, "num_heads": 8, "num_kv_heads": 8,
    "head_dim": 128, "intermediate_size": 512, "vocab_size": 997, "max_model_len": 1120, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}  # fmt: skip
CONFIG = uniform_model(**SHAPE)
LIMITS = Limits(vocab_size=997, max_model_len=1120, block_size=16, num_blocks=70, max_running=8, max_step_tokens=256)
HEADS, DIM, DTYPE = 8, 128, torch.bfloat16  # a kernel is compiled for each size and type, which takes a minute
# How much less likely than the argmax a token may be: rounding makes up to 0.02, one wrong page of a few 0.4.
MAX_REGRET = 0.05
Span = tuple[int, int]  # (tokens in the cache before, tokens of the chunk)


class Steps:
    """Steps over shuffled blocks, answered by FlashInfer and by torch."""

    def __init__(self, kv_heads: int, window: int = 0) -> None:
        from chairlift.runner.cuda.attention.flashinfer_planner import FlashPlanner

        self.spec = AttentionSpec(
            num_heads=HEADS, num_kv_heads=kv_heads, head_dim=DIM, scale=DIM**-0.5, rotation=None, window=window
        )
        self.host, self.tables = HostPart(63, 64, 16), torch.zeros(64, 64, dtype=torch.int32, device="cuda")
        self.num_steps = 0
        self.rng = random.Random(1)
        shape = (2000, kv_heads, 16, DIM)
        self.keys, self.values = (torch.randn(shape, device="cuda", dtype=DTYPE) for _ in range(2))
        kernels = FlashKernels(self.spec, 16, DTYPE, torch.device("cuda"))
        kernels.compile()
        self.planner = FlashPlanner(kernels, self.tables, 4096, 64)

    def step(self, spans: list[Span], first_id: int = 0) -> tuple[StepPlan, StepInput]:
        chunks = []
        for id, (start, count) in enumerate(spans, first_id):
            end = start + count
            blocks = [BlockId(block) for block in self.rng.sample(range(2000), -(-end // 16))]
            request = make_request(id, range(end), 4)
            chunks.append(Chunk(request, start, count, range(end), end, (blocks,), len(blocks), (request,)))
        self.num_steps += 1
        plan = StepPlan(self.num_steps, tuple(chunks), (), sum(count for _, count in spans), 0)
        step = self.host.input_of(plan)
        for row, place, block in step.updates.tolist():
            self.tables[row, place] = block
        return plan, step

    def queries(self, count: int) -> Tensor:
        return torch.randn(count, HEADS, DIM, device="cuda", dtype=DTYPE)

    def wanted(self, plan: StepPlan, q: Tensor) -> Tensor:
        contexts = torch.tensor([chunk.start + chunk.count for chunk in plan.chunks], dtype=torch.int32)
        tables = torch.zeros(len(contexts), 64, dtype=torch.int32)
        for r, chunk in enumerate(plan.chunks):
            tables[r, : len(chunk.blocks)] = torch.tensor(chunk.blocks)
        starts = torch.tensor([0, *(chunk.count for chunk in plan.chunks)]).cumsum(0).int()
        nothing = starts[:0].cuda()
        batch = Batch(
            nothing, nothing, nothing, starts.cuda(), contexts.cuda(), tables.cuda(), 0, int(contexts.max()), nothing
        )
        return TorchOps().attention(q.float(), self.spec, self.keys.float(), self.values.float(), batch)


def check(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got.float(), want, atol=2e-2, rtol=2e-2)


def check_mixed_steps(steps: Steps) -> None:
    for first_id, spans in enumerate(([(500, 1), (3, 1), (40, 130), (0, 300), (7, 1)], [(0, 5)], [(900, 1), (15, 1)])):
        plan, step = steps.step(spans, 10 * first_id)
        q = steps.queries(step.num_tokens)
        out = torch.empty(step.num_tokens, HEADS * DIM, dtype=DTYPE, device="cuda")
        planned = steps.planner.plan(step, None)
        planned.attend(q, steps.keys, steps.values, out)
        check(out, steps.wanted(plan, q))


@pytest.mark.parametrize("kv_heads", [8, 2, 1])
def test_a_mixed_step_is_answered_as_torch_answers_it(kv_heads: int) -> None:
    check_mixed_steps(Steps(kv_heads))


def test_a_window_limits_what_is_seen() -> None:
    check_mixed_steps(Steps(kv_heads=2, window=100))


@pytest.mark.parametrize("kv_heads", [8, 2])
@pytest.mark.parametrize("rung", [4, 64])
def test_a_captured_step_answers_by_its_latest_plan(kv_heads: int, rung: int) -> None:
    steps = Steps(kv_heads)
    q = steps.queries(rung)
    out = torch.zeros(rung, HEADS * DIM, dtype=DTYPE, device="cuda")
    graph = torch.cuda.CUDAGraph()
    rng, pairs = random.Random(0), []
    for turn in range(12):
        spans = [(rng.choice([0, 15, 16, 100, 900]), 1) for _ in range(rng.randint(1, min(rung, 20)))]
        plan, step = steps.step(spans, 100 * turn)
        planned = steps.planner.plan(step, rung)
        if turn == 0:
            planned.attend(q, steps.keys, steps.values, out)
            with torch.cuda.graph(graph):
                planned.attend(q, steps.keys, steps.values, out)
        graph.replay()
        pairs.append((plan, out[: len(spans)].clone()))
    # Only now, so that no step waited for another on the host: what was still to travel must not be written over.
    for plan, kept in pairs:
        check(kept, steps.wanted(plan, q[: len(kept)]))


def make(config: ModelConfig, attention: str) -> Runner:
    device = torch.device("cuda")
    kernels = "torch" if attention == "torch" else "triton"
    model = build_model(config, make_ops(kernels, 1), DummyTensors(config), DTYPE, device, config.max_model_len)
    kv = KvCache(config, LIMITS.num_blocks, LIMITS.block_size, DTYPE, device)
    flash = None
    if attention == "flashinfer":
        flash = FlashKernels(config.layers[0].attention, 16, DTYPE, device)
        flash.compile()
    return make_runner(kernels, model, kv, device, LIMITS, flash)


def run(runner: Runner, requests: list[Request]) -> list[Event]:
    engine = Engine(Scheduler(LIMITS, Fcfs()), runner, CountingClock())
    for request in requests:
        engine.add((request,))
    events: list[Event] = []
    while engine.has_work:
        events += engine.step()
    return events


def crowd(**more: object) -> list[Request]:
    rng = random.Random(0)
    lengths = [rng.choice([3, 20, 70, 300, 900]) for _ in range(16)]
    return [
        make_request(i, [rng.randrange(997) for _ in range(n)], rng.randint(60, 150), **{"temperature": 0.0} | more)
        for i, n in enumerate(lengths)
    ]


def outputs(events: list[Event]) -> dict[int, list[int]]:
    tokens: dict[int, list[int]] = {}
    for event in events:
        if isinstance(event, Token):
            tokens.setdefault(event.request, []).append(event.token)
    return tokens


def regrets(judge: Runner, requests: list[Request], tokens: dict[int, list[int]]) -> list[float]:
    """How much less likely than the argmax each token is for another runner."""
    asked = [
        make_request(r.id, [*r.prompt, *tokens[r.id]], 1, temperature=0.0, prompt_logprobs=1) for r in requests
    ]  # fmt: skip
    lengths = {request.id: len(tokens[request.id]) for request in requests}
    return [
        score.top[0][1] - score.logprob
        for event in run(judge, asked)
        if isinstance(event, PromptScored)
        for score in event.scores[-lengths[event.request] :]
    ]


@pytest.mark.parametrize("kv_heads", [8, 2])
def test_every_token_of_many_requests_is_nearly_the_argmax_of_torch(kv_heads: int) -> None:
    config = uniform_model(**SHAPE | {"num_kv_heads": kv_heads})
    requests = crowd()
    events = run(make(config, "flashinfer"), requests)
    assert any(isinstance(event, Preempted) for event in events)
    tokens = outputs(events)
    assert {r.id: len(tokens[r.id]) for r in requests} == {r.id: r.max_output for r in requests}
    assert max(regrets(make(config, "torch"), requests, tokens)) < MAX_REGRET


def test_sampled_and_scored_requests_are_served_too() -> None:
    requests = [*crowd()[:4], *crowd(logprobs=2)[4:8]]
    events = run(make(CONFIG, "flashinfer"), requests)
    assert max(regrets(make(CONFIG, "torch"), requests, outputs(events))) < MAX_REGRET
