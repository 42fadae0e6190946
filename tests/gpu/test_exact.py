"""`exact` on a real GPU: not one bit of a request's logits depends on what shares its steps.

Widths are those of a 7B model, whose matrices are the ones that a library splits; a few layers show as much as many.
Of each row of logits a sum over its bits is kept, which no order of adding changes.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from chairlift.core.engine import Engine
from chairlift.core.events import Admitted, Preempted, PromptScored, Token
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.spec import HF_NAMES, FeedForwardSpec, ModelConfig, uniform_model
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.clocks import CountingClock
from fakes.requests import make_request, make_samples

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DEVICE = torch.device("cuda")
NUM_REQUESTS, NUM_TOKENS = 300, 36
SHAPE: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "hidden_size": 4096, "num_layers": 2, "num_heads": 32, "num_kv_heads": 32,
    "head_dim": 128, "intermediate_size": 11008, "vocab_size": 32000, "max_model_len": 1024, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}  # fmt: skip
LARGE = uniform_model(**SHAPE)
SMALL = SHAPE | {
    "hidden_size": 512, "num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "intermediate_size": 1408,
    "vocab_size": 4001,
}  # fmt: skip


def capped() -> ModelConfig:
    """The small one with all that a plain layer has not, in one of its layers."""
    plain = uniform_model(**SMALL)
    first, second = plain.layers
    attention = replace(first.attention, window=70, cap=0.5, scale=0.3)
    other = replace(
        first, mixer=attention, feed_forward=FeedForwardSpec(width=1408, activation="gelu_tanh"),
        has_norm_after=True, residual_factor=0.22,
    )  # fmt: skip
    names = replace(HF_NAMES, after_attention="1_norm", after_feed_forward="2_norm")
    return replace(plain, layers=(other, second), names=names, embedding_factor=22.6, logit_cap=30.0)


LIMITS = Limits(
    vocab_size=LARGE.vocab_size, max_model_len=LARGE.max_model_len, block_size=16, num_blocks=4000, max_running=300,
    max_step_tokens=2048,
)  # fmt: skip
Place = tuple[int, int]  # request, position


def build(config: ModelConfig, exact: bool, dtype: torch.dtype = torch.bfloat16) -> Decoder:
    return build_model(config, CudaOps(exact), DummyTensors(config, dtype, DEVICE), dtype, DEVICE, config.max_model_len)


class Sums:
    """Notes what every sample is chosen from."""

    def __init__(self, vocab: int) -> None:
        self._factors = torch.randint(1 << 62, (vocab,), generator=torch.Generator().manual_seed(0)).to(DEVICE) | 1
        self._seen: list[tuple[list[Place], Tensor]] = []

    def __call__(self, requests: Any, positions: Any, logits: Tensor) -> None:
        sums = (logits.view(torch.int32).long() * self._factors).sum(dim=1)
        self._seen.append((list(zip(requests, positions, strict=True)), sums))

    def take(self) -> dict[Place, int]:
        return {
            place: one for places, sums in self._seen for place, one in zip(places, sums.tolist(), strict=True)
        }  # fmt: skip


class Ran(NamedTuple):
    sums: dict[Place, int]  # of rows of logits
    told: list[Any]  # tokens and scores
    num_preempted: int  # most often
    num_hits: int


@dataclass
class Way:
    """How steps come about."""

    limits: Limits = LIMITS
    preemption: Preemption | None = None
    has_prefix_index: bool = True
    uses_graphs: bool = True
    shuffle: int = 0


def run(model: Decoder, groups: list[tuple[Request, ...]], way: Way, exact: bool = True) -> Ran:
    limits = replace(way.limits, vocab_size=model.config.vocab_size)
    num_host = way.preemption.num_host_blocks if way.preemption else 0
    dtype = model.dtype
    kv = KvCache(model.config, limits.num_blocks, limits.block_size, dtype, DEVICE, num_host)
    runner = CudaRunner(model, kv, DEVICE, limits, exact=exact)
    runner.uses_graphs = way.uses_graphs
    sums = runner.on_logits = Sums(model.config.vocab_size)
    scheduler = Scheduler(limits, Fcfs(), preemption=way.preemption, has_prefix_index=way.has_prefix_index)
    engine = Engine(scheduler, runner, CountingClock())
    for group in random.Random(way.shuffle).sample(groups, len(groups)) if way.shuffle else groups:
        engine.add(group)
    told: list[Any] = []
    preempted: Counter[int] = Counter()
    num_hits = 0
    while engine.has_work:
        for event in engine.step():
            num_hits += isinstance(event, Admitted) and event.num_cached > 0
            if isinstance(event, Preempted):
                preempted[event.request] += 1
            elif isinstance(event, Token):
                told.append((event.request, "token", event.token, event.score))
            elif isinstance(event, PromptScored):
                told.append((event.request, "prompt", event.scores))
    return Ran(sums.take(), sorted(told, key=lambda one: one[0]), max(preempted.values(), default=0), num_hits)


def crowd(vocab: int, **more: Any) -> list[tuple[Request, ...]]:
    """Some share a beginning; most prompts are short, some need tiles of queries or stretches that are joined."""
    rng = random.Random(1)
    shared = [rng.randrange(vocab) for _ in range(64)]
    groups = []
    for i in range(NUM_REQUESTS):
        own = [rng.randrange(vocab) for _ in range(rng.choice([3, 12, 20, 40, 40, 80, 400 if i % 10 == 0 else 20]))]
        prompt = [*shared[: 16 * (i % 5)], *own]
        groups.append((make_request(i, prompt, NUM_TOKENS, **{"temperature": 0.0} | more),))
    return groups


@pytest.fixture(scope="module")
def large() -> Decoder:
    return build(LARGE, exact=True)


@pytest.fixture(scope="module")
def seven(large: Decoder) -> Ran:
    """Seven at a time, without shared prefixes: what all others are compared with."""
    return run(large, crowd(LARGE.vocab_size), Way(replace(LIMITS, max_running=7), has_prefix_index=False))


def differing(one: Ran, other: Ran) -> int:
    places = one.sums.keys() & other.sums.keys()
    assert len(places) == min(len(one.sums), len(other.sums))
    return sum(one.sums[place] != other.sums[place] for place in places)


def test_a_request_alone_has_the_bits_of_a_batch_of_seven(large: Decoder, seven: Ran) -> None:
    alone = run(large, crowd(LARGE.vocab_size)[:30], Way(replace(LIMITS, max_running=1)))
    assert len(alone.sums) == 30 * NUM_TOKENS
    assert differing(alone, seven) == 0


WAYS = {
    "64 at a time": Way(replace(LIMITS, max_running=64)),
    "all at once": Way(),
    "in another order": Way(shuffle=5),
    "in small chunks": Way(replace(LIMITS, max_running=64, max_step_tokens=67), shuffle=6),
    "without graphs": Way(replace(LIMITS, max_running=100), uses_graphs=False),
    "preempted and computed again": Way(replace(LIMITS, num_blocks=300), Preemption(), shuffle=7),
    "preempted and swapped": Way(replace(LIMITS, num_blocks=300), Preemption(mode="swap", num_host_blocks=3000)),
}


@pytest.mark.parametrize("name", WAYS)
def test_no_bit_depends_on_what_shares_the_steps(large: Decoder, seven: Ran, name: str) -> None:
    ran = run(large, crowd(LARGE.vocab_size), WAYS[name])
    assert len(ran.sums) == NUM_REQUESTS * NUM_TOKENS > 10_000
    assert ran.num_hits > 0
    assert (ran.num_preempted > 0) is ("preempted" in name)
    assert differing(ran, seven) == 0
    assert ran.told == seven.told


def test_without_exact_bits_do_differ() -> None:
    model = build(LARGE, exact=False)
    groups = crowd(LARGE.vocab_size)[:100]
    few, many = (
        run(model, groups, Way(replace(LIMITS, max_running=count)), exact=False) for count in (7, 100)
    )  # fmt: skip
    places = few.sums.keys() & many.sums.keys()
    assert sum(few.sums[place] != many.sums[place] for place in places) > 0


def test_steps_are_captured_whose_products_were_never_tried() -> None:
    model = build(uniform_model(**SMALL), exact=True)
    limits = replace(LIMITS, vocab_size=model.config.vocab_size)
    kv = KvCache(model.config, limits.num_blocks, limits.block_size, model.dtype, DEVICE, 0)
    runner = CudaRunner(model, kv, DEVICE, limits, exact=True)
    assert [runner.prepare() for _ in range(3)] == [True] * 3


WISHES: list[dict[str, Any]] = [
    {"logprobs": 5},
    {"temperature": 0.1, "top_p": 0.9, "logprobs": 2},
    {"temperature": 0.1, "top_k": 20, "prompt_logprobs": 1},
    {"repetition_penalty": 1.3, "logprobs": 0},
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    "config",
    [
        uniform_model(**SMALL), uniform_model(**SMALL | {"has_qkv_bias": True, "sliding_window": 70}),
        uniform_model(**SMALL | {"has_qk_norm": True}), capped(),
    ],
    ids=["plain", "bias", "norms", "capped"],
)  # fmt: skip
def test_tokens_and_scores_of_wishful_requests_stay_the_same(dtype: torch.dtype, config: ModelConfig) -> None:
    model = build(config, exact=True, dtype=dtype)
    rng = random.Random(2)
    groups = []
    for i in range(24):
        prompt = [rng.randrange(config.vocab_size) for _ in range(rng.choice([5, 30, 150, 600]))]
        groups.append(make_samples(10 * i, prompt, 1 + i % 3, 12, **{"temperature": 0.0} | WISHES[i % 4]))
    one = run(model, groups, Way(replace(LIMITS, max_running=3, max_step_tokens=500)))
    other = run(model, groups, Way(replace(LIMITS, num_blocks=160), Preemption(), shuffle=3))
    assert differing(one, other) == 0
    assert other.told == one.told
