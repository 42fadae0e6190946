"""Scheduling never changes tokens, on a real model: a tiny decoder in float64, where rounding cannot hide a mistake."""

import random
from collections import Counter

import pytest
import torch

from chairlift.config.model import ModelConfig
from chairlift.core.engine import Engine
from chairlift.core.events import Admitted, Event, Forked, Preempted, Token
from chairlift.core.ids import RequestId
from chairlift.core.invariants import check
from chairlift.core.limits import Limits
from chairlift.core.policies.fcfs import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduler import Scheduler
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch_ops import TorchOps
from chairlift.runner.torch_runner import TorchRunner
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.clocks import CountingClock
from fakes.requests import make_samples

CONFIG = ModelConfig(
    architecture="LlamaForCausalLM", hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
    intermediate_size=48, vocab_size=97, max_model_len=64, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip
CPU = torch.device("cpu")
MODEL = build_model(CONFIG, TorchOps(), DummyTensors(), torch.float64, CPU, 64)

Tokens = dict[RequestId, list[int]]


def run(limits: Limits, arrivals: dict[int, list[tuple[Request, ...]]]) -> tuple[Tokens, Counter[type[Event] | str]]:
    cache = KvCache(CONFIG, limits.num_blocks, limits.block_size, torch.float64, CPU)
    scheduler = Scheduler(limits, Fcfs())
    engine = Engine(scheduler, TorchRunner(MODEL, cache, CPU), CountingClock())
    tokens: Tokens = {}
    kinds: Counter[type[Event] | str] = Counter()
    step = 0
    while engine.has_work or step <= max(arrivals):
        for samples in arrivals.get(step, ()):
            engine.add(samples)
        for event in engine.step():
            kinds[type(event)] += 1
            kinds["hit"] += isinstance(event, Admitted) and event.num_cached > 0
            if isinstance(event, Token):
                tokens.setdefault(event.request, []).append(event.token)
        check(scheduler)
        step += 1
    return tokens, kinds


def limits(num_blocks: int, block_size: int, max_running: int, max_step_tokens: int) -> Limits:
    return Limits(
        vocab_size=97, max_model_len=64, block_size=block_size, num_blocks=num_blocks, max_running=max_running,
        max_step_tokens=max_step_tokens,
    )  # fmt: skip


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_preempted_chunked_forked_and_cached_requests_get_the_tokens_they_get_alone(block_size: int) -> None:
    rng = random.Random(block_size)
    shared = [rng.randrange(97) for _ in range(40)]
    arrivals: dict[int, list[tuple[Request, ...]]] = {}
    groups = []
    for i in range(10):
        prompt = shared[: rng.randint(5, 40)] if i % 2 else [rng.randrange(97) for _ in range(rng.randint(1, 40))]
        more = {"temperature": 0.0} if i % 3 else {"temperature": 0.9, "seed": 5, "repetition_penalty": 1.3}
        group = make_samples(10 * i, prompt, n=1 + 2 * (i % 4 == 0), max_output=12, **more)
        groups.append(group)
        arrivals.setdefault(rng.randint(0, 6), []).append(group)
    crowded, kinds = run(limits(80 // block_size, block_size, max_running=5, max_step_tokens=17), arrivals)
    assert min(kinds[Preempted], kinds[Forked], kinds["hit"]) > 0, "the world was too easy to show anything"
    for group in groups:
        for request in group:  # each sample alone, in a pool with room for everything
            alone, _ = run(limits(64 // block_size, block_size, max_running=1, max_step_tokens=64), {0: [(request,)]})
            assert crowded[request.id] == alone[request.id], f"request {request.id}"
