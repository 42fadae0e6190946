"""The CUDA runner's own part of a step without a GPU: kernels in Triton's interpreter, nothing captured, a small model.

Two steps are planned ahead, so a token is drawn before the host knows the one before it; the torch runner, one at a
time, says what must come out.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
import triton
from torch import Tensor

from chairlift.core.engine import Engine
from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Admitted, Forked, Preempted, PromptScored, Shrunk, Token
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.plan import StepPlan
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import DeviceLost, Runner, RunnerFailed
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.cuda.attention.tiling import Tiling
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.cuda.sampling.sampler import CudaSampler
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.cuda.step.forward import Forward
from chairlift.runner.cuda.step.graph_key import MAX_GRAPHS, GraphKeys
from chairlift.runner.cuda.step.memory import StepMemory
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.memory.measure import measure_footprint
from chairlift.runner.model import OnLayer, nothing
from chairlift.runner.ops import Batch
from chairlift.runner.sampling.matchers import Matchers
from chairlift.runner.start.synthetic_steps import GREEDY, synthetic_step
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.torch.runner import TorchRunner
from fakes.clocks import CountingClock
from fakes.gpu import DoneEvent
from fakes.requests import make_request, make_samples, make_search

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("no_gpu"),
]

CPU = torch.device("cpu")
VOCAB, LONGEST = 61, 48
CONFIG = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=8,
    intermediate_size=8, vocab_size=VOCAB, max_model_len=LONGEST, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip
LIMITS = Limits(
    vocab_size=VOCAB, max_model_len=LONGEST, block_size=4, num_blocks=10, max_running=6, max_step_tokens=16
)  # fmt: skip
STOPS = frozenset(range(0, VOCAB, 3))


@dataclass
class Pairs:
    """A model to which only the last token and its position matter."""

    ops: TorchOps = field(default_factory=TorchOps)
    config: ModelConfig = CONFIG

    def hidden(self, batch: Batch, kv: KvCache, on_layer: OnLayer = nothing) -> Tensor:
        numbers = torch.Generator().manual_seed(3)
        by_token, by_position = (torch.randn(n, VOCAB, generator=numbers) * 2 for n in (VOCAB, LONGEST))
        rows = slice(None) if batch.logit_rows is None else batch.logit_rows.long()
        return by_token[batch.tokens[rows]] + by_position[batch.positions[rows].long()]

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.clone()


@pytest.fixture(params=[True, False], ids=["padded", "bare"])
def is_padded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether steps are laid out to be captured."""
    if not request.param:
        monkeypatch.setattr(GraphKeys, "of", lambda *_: None)
    return bool(request.param)


def run(
    kind: Any, groups: list[tuple[Request, ...]], preemption: Preemption, matchers: Matchers | None = None
) -> tuple[list[Any], Counter[str]]:
    """Tokens and scores in the order of requests, and how often what happened."""
    kv = KvCache(CONFIG, LIMITS.num_blocks, LIMITS.block_size, torch.float32, CPU, preemption.num_host_blocks)
    runner: Runner = kind(Pairs(), kv, CPU, *[LIMITS][: kind is CudaRunner], matchers=matchers)
    engine = Engine(Scheduler(LIMITS, Fcfs(), preemption=preemption), runner, CountingClock())
    for group in groups:
        engine.add(group)
    told: list[Any] = []
    kinds: Counter[str] = Counter()
    while engine.has_work:
        for event in engine.step():
            kinds[type(event).__name__] += 1
            kinds["hit"] += isinstance(event, Admitted) and event.num_cached > 0
            kinds["swap"] += isinstance(event, Preempted) and event.is_swapped
            if isinstance(event, Token):
                told.append((event.request, event.token, event.score, event.finish))
            elif isinstance(event, PromptScored):
                told.append((event.request, event.scores))
    return sorted(told, key=lambda one: one[0]), kinds


SHARED = [7, 7, 1, 30, 12, 7, 44, 9, 2, 51, 13, 8]
GROUPS = [
    make_samples(0, SHARED, 3, 6, temperature=0.9, repetition_penalty=1.3, frequency_penalty=0.5),
    (make_request(10, [*SHARED, 3, 3, 3], 9, temperature=0.0, presence_penalty=1.5, repetition_penalty=1.7),),
    (make_request(11, SHARED[:9], 8, temperature=0.0),),
    (make_request(12, SHARED[:6], 8, top_p=0.8, logprobs=3),),
    (make_request(13, [5, 6], 8, temperature=0.0, logit_bias={4: 7.5, 9: -3.0}, logprobs=0),),
    (make_request(14, [5, 6, 7], 10, temperature=0.0, min_tokens=5, stop_ids=STOPS),),
    (
        make_request(
            15, SHARED, 8, top_k=7, min_p=0.02, prompt_logprobs=2, logprobs=5, repetition_penalty=1.2, min_tokens=3,
            logit_bias={1: 3.0}, stop_ids=STOPS,
        ),
    ),
    make_search(40, [1, 2, 3], 2, 4),
    make_samples(50, [4], 5, 3, temperature=1.1),
]  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("is_padded", "mode"),
    [
        (True, "recompute"), (False, "swap"), pytest.param(True, "swap", marks=pytest.mark.nightly),
        pytest.param(False, "recompute", marks=pytest.mark.nightly),
    ],
    indirect=["is_padded"],
)  # fmt: skip
@pytest.mark.usefixtures("is_padded")
def test_a_mixed_crowd_gets_what_the_torch_runner_gives(mode: str) -> None:
    preemption = Preemption(mode="swap", num_host_blocks=40) if mode == "swap" else Preemption()
    got, kinds = run(CudaRunner, GROUPS, preemption)
    want, _ = run(TorchRunner, GROUPS, preemption)
    assert min(kinds[Preempted.__name__], kinds[Forked.__name__], kinds["hit"]) > 0
    assert (kinds["swap"] > 0) is (preemption.mode == "swap")
    assert got == want


@pytest.mark.nightly
# By default the pairs of layout and preemption that the crowd above leaves out.
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("is_padded", "seed"),
    [
        pytest.param(is_padded, seed, marks=() if (is_padded, seed) in ((False, 0), (True, 1)) else pytest.mark.nightly)
        for is_padded in (True, False)
        for seed in range(40)
    ],
    indirect=["is_padded"],
)
@pytest.mark.usefixtures("is_padded")
def test_so_it_does_when_memory_runs_out_anywhere_in_a_step(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    num_tokens = 0

    def submit(runner: CudaRunner, plan: StepPlan, submit: Any = CudaRunner.submit) -> None:
        nonlocal num_tokens
        num_tokens = plan.num_tokens
        submit(runner, plan)

    def may_fail(owner: type, name: str) -> None:
        """Now and then, after it is done, in a step that can be made smaller."""
        method = getattr(owner, name)

        def wrapped(*args: Any, **more: Any) -> Any:
            result = method(*args, **more)
            if num_tokens > 1 and rng.random() < 0.08:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return result

        monkeypatch.setattr(owner, name, wrapped)

    preemption = Preemption(mode="swap", num_host_blocks=40) if seed % 2 else Preemption()
    want, _ = run(TorchRunner, GROUPS, preemption)
    monkeypatch.setattr(CudaRunner, "submit", submit)
    for owner, name in (
        (KvCache, "move_blocks"), (StepMemory, "send"), (Forward, "hidden"), (Forward, "choose"),
        (CudaSampler, "choose"),
    ):  # fmt: skip
        may_fail(owner, name)
    got, kinds = run(CudaRunner, GROUPS, preemption)
    assert kinds[Shrunk.__name__] > 2
    assert got == want


def make_runner(limits: Limits = LIMITS, model: Any = None, max_graphs: int = MAX_GRAPHS) -> CudaRunner:
    kv = KvCache(CONFIG, limits.num_blocks, limits.block_size, torch.float32, CPU)
    return CudaRunner(model or Pairs(), kv, CPU, limits, max_graphs=max_graphs)


def do(runner: CudaRunner, *spans: tuple[int, int]) -> list[int]:
    """The tokens of one step of requests that compute (start, count) tokens."""
    runner.submit(synthetic_step(spans, LIMITS, 0, GREEDY))
    return list(runner.collect().tokens)


def test_limits_with_drafts_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="drafts are not checked on a GPU"):
        make_runner(replace(LIMITS, max_drafts=2))


def test_a_result_says_whether_the_step_had_ended_before(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, found = make_runner(), []
    for has_ended in (True, False):
        monkeypatch.setattr(DoneEvent, "query", lambda _, has_ended=has_ended: has_ended)
        runner.submit(synthetic_step([(0, 3)], LIMITS, 0, GREEDY))
        found.append(runner.collect().was_ready)
    assert found == [True, False]


def test_it_can_be_measured() -> None:
    assert measure_footprint(make_runner, LIMITS, 1, lambda: 0, lambda: None).num_tokens == LIMITS.max_step_tokens


@dataclass
class Watched(Pairs):
    """Notes how steps are laid out."""

    alignments: set[int] = field(default_factory=set)
    tilings: set[Tiling] = field(default_factory=set)

    def hidden(self, batch: Batch, kv: KvCache, on_layer: OnLayer = nothing) -> Tensor:
        assert isinstance(batch, CudaBatch)
        columns = (batch.positions, batch.slots, batch.table_rows, batch.short_positions)
        self.alignments.update(column.data_ptr() % 16 for column in columns)
        self.tilings.add(batch.tiling)
        return torch.zeros(len(batch.tokens if batch.logit_rows is None else batch.logit_rows), VOCAB)


@pytest.mark.usefixtures("is_padded")
def test_steps_of_any_size_and_context_run_the_same_few_kernels() -> None:
    model = Watched()
    runner = make_runner(replace(LIMITS, max_model_len=500), model)
    for count in range(1, 12):
        do(runner, (count % 5, count))
    assert model.alignments == {0}, "for a pointer that is not aligned there is another kernel"
    for start in range(0, 500, 12):
        do(runner, (start, 1))
    assert len(model.tilings) == 4  # of 64, 128, 256 and 512 keys


def failing(monkeypatch: pytest.MonkeyPatch) -> CudaRunner:
    def fail(*_: Any) -> None:
        raise triton.TritonError("out of resource")

    runner = make_runner()
    monkeypatch.setattr(runner.device._model, "logits", fail)
    return runner


def test_a_step_that_failed_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(DoneEvent, "record", lambda _: calls.append("record"))
    monkeypatch.setattr(DoneEvent, "synchronize", lambda _: calls.append("synchronize"))
    with pytest.raises(RunnerFailed, match="out of resource"):
        do(failing(monkeypatch), (0, 3))
    assert calls == ["record", "synchronize"]


def test_a_device_that_is_lost_fails_no_step_but_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(DoneEvent, "synchronize", lost)
    with pytest.raises(DeviceLost, match="illegal memory access"):
        do(failing(monkeypatch), (0, 3))
    with pytest.raises(DeviceLost, match="illegal memory access"):  # found when the result is asked for
        do(make_runner(), (0, 3))
