"""The Triton path on a real GPU: the same tokens as torch's operations, graphs and overlap included."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from chairlift.core.engine import Engine
from chairlift.core.events import Admitted, Preempted, PromptScored, Token
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.plan import StepPlan
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import Runner
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.core.score import TokenScore
from chairlift.models.mixers.attention import Rotation
from chairlift.models.spec import HF_NAMES, FeedForwardSpec, ModelConfig, uniform_model
from chairlift.runner.kernels import make_ops, make_runner
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.clocks import CountingClock
from fakes.requests import make_request, make_samples, make_search

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

SHAPE: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "hidden_size": 256, "num_layers": 3, "num_heads": 8, "num_kv_heads": 4,
    "head_dim": 32, "intermediate_size": 512, "vocab_size": 997, "max_model_len": 1120, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}  # fmt: skip
CONFIG = uniform_model(**SHAPE)
LIMITS = Limits(vocab_size=997, max_model_len=1120, block_size=16, num_blocks=70, max_running=8, max_step_tokens=256)
STOPS = frozenset(range(0, 997, 2))


class Ran(NamedTuple):
    tokens: dict[int, list[int]]
    scores: dict[int, list[TokenScore]]
    prompt_scores: dict[int, tuple[TokenScore, ...]]
    num_preempted: int
    num_hits: int


def make(kernels: str, config: ModelConfig, dtype: torch.dtype, num_host_blocks: int = 0) -> Runner:
    device = torch.device("cuda")
    model = build_model(config, make_ops(kernels, 1), DummyTensors(config), dtype, device, config.max_model_len)
    kv = KvCache(config, LIMITS.num_blocks, LIMITS.block_size, dtype, device, num_host_blocks)
    return make_runner(kernels, model, kv, device, LIMITS)


def run(runner: Runner, groups: list[tuple[Request, ...]], preemption: Preemption | None = None) -> Ran:
    engine = Engine(Scheduler(LIMITS, Fcfs(), preemption=preemption), runner, CountingClock())
    for group in groups:
        engine.add(group)
    ran = Ran({}, {}, {}, 0, 0)
    while engine.has_work:
        for event in engine.step():
            num_preempted = ran.num_preempted + isinstance(event, Preempted)
            num_hits = ran.num_hits + (isinstance(event, Admitted) and event.num_cached > 0)
            ran = ran._replace(num_preempted=num_preempted, num_hits=num_hits)
            if isinstance(event, Token):
                ran.tokens.setdefault(event.request, []).append(event.token)
                if event.score is not None:
                    ran.scores.setdefault(event.request, []).append(event.score)
            elif isinstance(event, PromptScored):
                ran.prompt_scores[event.request] = event.scores
    return ran


def crowd(**more: object) -> list[tuple[Request, ...]]:
    rng = random.Random(0)
    lengths = [rng.choice([3, 20, 70, 300, 900]) for _ in range(16)]
    return [
        (make_request(i, [rng.randrange(997) for _ in range(n)], rng.randint(60, 150), **{"temperature": 0.0} | more),)
        for i, n in enumerate(lengths)
    ]


@pytest.mark.parametrize("kv_heads", [8, 4, 1])
@pytest.mark.parametrize("more", [{}, {"has_qk_norm": True}, {"sliding_window": 100}, {"has_qkv_bias": True}])
def test_a_crowd_gets_the_tokens_that_torch_gives(kv_heads: int, more: dict[str, object]) -> None:
    config = uniform_model(**SHAPE | {"num_kv_heads": kv_heads} | more)
    got, want = run(make("triton", config, torch.float32), crowd()), run(make("torch", config, torch.float32), crowd())
    assert got.num_preempted > 0
    assert got.tokens == want.tokens


@pytest.mark.parametrize("kv_heads", [8, 4])
def test_so_it_does_where_layers_differ(kv_heads: int) -> None:
    plain = uniform_model(**SHAPE | {"num_kv_heads": kv_heads})
    first, second, _ = plain.layers
    capped = replace(first.attention, window=100, cap=0.5, scale=0.3, rotation=Rotation(theta=100.0))
    gelu = replace(first, feed_forward=FeedForwardSpec(width=512, activation="gelu_tanh"), has_norm_after=True)
    narrow = replace(first.attention, num_heads=16, num_kv_heads=16, head_dim=16, rotation=None)
    config = replace(
        plain, layers=(replace(gelu, mixer=capped), second, replace(gelu, mixer=narrow, residual_factor=0.5)),
        names=replace(HF_NAMES, after_attention="1_norm", after_feed_forward="2_norm"), embedding_factor=16.0,
        logit_cap=30.0,
    )  # fmt: skip
    got, want = run(make("triton", config, torch.float32), crowd()), run(make("torch", config, torch.float32), crowd())
    assert got.num_preempted > 0
    assert got.tokens == want.tokens


# Dummy weights make all tokens about as likely: only a low temperature tells them apart.
WISHES: list[dict[str, Any]] = [
    {"temperature": 0.05},
    {"temperature": 0.05, "top_p": 0.9, "seed": 7},
    {"temperature": 0.1, "top_k": 20, "min_p": 0.01, "logprobs": 2},
    {"temperature": 0.05, "repetition_penalty": 1.3, "frequency_penalty": 0.2},
    {"presence_penalty": 0.5, "repetition_penalty": 1.5, "logprobs": 0},
    {"logit_bias": {5: 1.0, 6: -1.0}, "min_tokens": 6, "stop_ids": STOPS},
    {"logprobs": 5},
    {"prompt_logprobs": 1, "temperature": 0.05, "top_p": 0.5},
]


def wishful(first_id: int) -> list[tuple[Request, ...]]:
    """Requests of all kinds with shared beginnings, among greedy ones that crowd them out."""
    rng = random.Random(first_id)
    shared = [rng.randrange(997) for _ in range(100)]
    groups = []
    for i, wishes in enumerate(WISHES):
        prompt = [*shared[: rng.choice([40, 100])], *(rng.randrange(997) for _ in range(rng.choice([3, 180])))]
        groups.append(
            make_samples(first_id + 20 * i, prompt, 1 + 2 * (i % 3 == 0), 12, **{"temperature": 0.0} | wishes)
        )
        fill = [rng.randrange(997) for _ in range(200)]
        groups.append((make_request(first_id + 20 * i + 10, fill, 100, temperature=0.0),))
    return groups


def test_sampled_shaped_and_scored_requests_get_what_torch_gives() -> None:
    groups = [*wishful(1000), make_search(5000, range(30), 3, 8)]
    got, want = run(make("triton", CONFIG, torch.float32), groups), run(make("torch", CONFIG, torch.float32), groups)
    assert min(got.num_preempted, got.num_hits) > 0
    assert got.tokens == want.tokens
    for request, scores in {**want.scores, **want.prompt_scores}.items():
        for mine, other in zip({**got.scores, **got.prompt_scores}[request], scores, strict=True):
            assert (mine.token, mine.rank, len(mine.top)) == (other.token, other.rank, len(other.top))
            assert (mine.logit, mine.logprob) == pytest.approx((other.logit, other.logprob), abs=1e-4)
            assert [p for _, p in mine.top] == pytest.approx([p for _, p in other.top], abs=1e-4)


class Impatient:
    """A runner that may not wait in `submit`."""

    depth = 2

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.collect = runner.collect

    def submit(self, plan: StepPlan) -> None:
        with never_waiting():
            self._runner.submit(plan)


@contextmanager
def never_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_no_step_waits_for_the_gpu_unless_a_prompt_is_scored() -> None:
    groups = [[group for group in wishful(first) if group[0].params.prompt_logprobs is None] for first in (1000, 3000)]
    runner = make("triton", CONFIG, torch.float32)
    run(runner, groups[0])  # what is captured and compiled only once may wait
    run(runner, groups[1])
    again = run(Impatient(runner), groups[1])
    assert {len(again.tokens[group[0].id]) for group in groups[1] if not group[0].stop_ids} == {12, 100}


def test_swapped_requests_go_on_where_they_were() -> None:
    swap = Preemption(mode="swap", num_host_blocks=200)
    got = run(make("triton", CONFIG, torch.float32, 200), crowd(), swap)
    want = run(make("torch", CONFIG, torch.float32), crowd())
    assert got.num_preempted > 0
    assert got.tokens == want.tokens


def test_penalties_count_what_was_swapped_out_and_in() -> None:
    swap = Preemption(mode="swap", num_host_blocks=200)
    groups = crowd(repetition_penalty=1.3, presence_penalty=0.2)
    got = run(make("triton", CONFIG, torch.float32, 200), groups, swap)
    want = run(make("torch", CONFIG, torch.float32), groups)
    assert got.num_preempted > 0
    assert got.tokens == want.tokens


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_completes_every_request(dtype: torch.dtype) -> None:
    ran = run(make("triton", CONFIG, dtype), crowd())
    assert {len(ran.tokens[group[0].id]) == group[0].max_output for group in crowd()} == {True}
