"""The Triton path on a real GPU: the same tokens as torch's operations, graphs and overlap included."""

import random
from dataclasses import replace

import pytest
import torch

from chairlift.config.model import ModelConfig
from chairlift.core.engine import Engine
from chairlift.core.events import Preempted, Token
from chairlift.core.limits import Limits
from chairlift.core.policies.fcfs import Fcfs
from chairlift.core.ports import Runner
from chairlift.core.preemption import Preemption
from chairlift.core.request import Request
from chairlift.core.scheduler import Scheduler
from chairlift.runner.kernels import make_ops, make_runner
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.clocks import CountingClock
from fakes.requests import make_request, make_samples

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

CONFIG = ModelConfig(
    architecture="LlamaForCausalLM", hidden_size=256, num_layers=3, num_heads=8, num_kv_heads=4, head_dim=32,
    intermediate_size=512, vocab_size=997, max_model_len=1120, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip
LIMITS = Limits(vocab_size=997, max_model_len=1120, block_size=16, num_blocks=70, max_running=8, max_step_tokens=256)
Tokens = dict[int, list[int]]


def make(kernels: str, config: ModelConfig, dtype: torch.dtype, num_host_blocks: int = 0) -> Runner:
    device = torch.device("cuda")
    model = build_model(config, make_ops(kernels, 1), DummyTensors(), dtype, device, config.max_model_len)
    kv = KvCache(config, LIMITS.num_blocks, LIMITS.block_size, dtype, device, num_host_blocks)
    return make_runner(kernels, model, kv, device, LIMITS)


def run(runner: Runner, groups: list[tuple[Request, ...]], preemption: Preemption | None = None) -> tuple[Tokens, int]:
    engine = Engine(Scheduler(LIMITS, Fcfs(), preemption=preemption), runner, CountingClock())
    for group in groups:
        engine.add(group)
    tokens: Tokens = {}
    num_preempted = 0
    while engine.has_work:
        for event in engine.step():
            num_preempted += isinstance(event, Preempted)
            if isinstance(event, Token):
                tokens.setdefault(event.request, []).append(event.token)
    return tokens, num_preempted


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
    config = replace(CONFIG, num_kv_heads=kv_heads, **more)  # type: ignore[arg-type]
    got, num_preempted = run(make("triton", config, torch.float32), crowd())
    want, _ = run(make("torch", config, torch.float32), crowd())
    assert num_preempted > 0
    assert got == want


def test_sampled_shaped_and_scored_requests_share_steps_with_greedy_ones() -> None:
    groups = crowd()[:6]
    for i, more in enumerate(
        [{"temperature": 0.8}, {"repetition_penalty": 1.5}, {"logprobs": 3}, {"prompt_logprobs": 1}]
    ):
        groups.append(make_samples(100 + 10 * i, range(30 + i), 3 if i == 0 else 1, 20, **{"temperature": 0.0} | more))
    assert run(make("triton", CONFIG, torch.float32), groups) == run(make("torch", CONFIG, torch.float32), groups)


def test_swapped_requests_go_on_where_they_were() -> None:
    swap = Preemption(mode="swap", num_host_blocks=200)
    got, num_preempted = run(make("triton", CONFIG, torch.float32, 200), crowd(), swap)
    want, _ = run(make("torch", CONFIG, torch.float32), crowd())
    assert num_preempted > 0
    assert got == want


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_completes_every_request(dtype: torch.dtype) -> None:
    tokens, _ = run(make("triton", CONFIG, dtype), crowd())
    assert {len(tokens[group[0].id]) == group[0].max_output for group in crowd()} == {True}
