"""Logits of a small model by the exact CUDA path in Triton's interpreter: alone, together, in chunks, preempted."""

import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from chairlift.core.engine import Engine
from chairlift.core.events import Preempted, Token
from chairlift.core.limits import Limits
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.spec import HF_NAMES, FeedForwardSpec, ModelConfig, uniform_model
from chairlift.runner.cuda.attention import exact as exact_attention
from chairlift.runner.cuda.attention import tiling
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.cuda.step import layout
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.clocks import CountingClock
from fakes.requests import make_request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("no_gpu", "ordered_dots", "short_cuts"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # padding is computed from whatever lies in memory
]

CPU = torch.device("cpu")
PLAIN = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=16,
    intermediate_size=32, vocab_size=61, max_model_len=64, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip
(LAYER,) = PLAIN.layers
# What a plain layer has not.
DECLARED = replace(
    PLAIN, embedding_factor=5.7, logit_cap=2.0, names=replace(HF_NAMES, after_attention="1", after_feed_forward="2"),
    layers=(
        replace(
            LAYER, mixer=replace(LAYER.attention, window=11, cap=0.5, scale=0.3), has_norm_after=True,
            feed_forward=FeedForwardSpec(width=32, activation="gelu_tanh"), residual_factor=0.22,
        ),
    ),
)  # fmt: skip
LIMITS = Limits(vocab_size=61, max_model_len=64, block_size=4, num_blocks=80, max_running=6, max_step_tokens=38)


@pytest.fixture
def short_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few dozen keys have stretches to be joined, and a prompt of some tokens has tiles of queries."""
    for module in (exact_attention, tiling):
        monkeypatch.setattr(module, "EXACT_SPLIT", 16)
        monkeypatch.setattr(module, "EXACT_TILE", 8)
    monkeypatch.setattr(layout, "MAX_ROW_PAIRS", 100)


def run(config: ModelConfig, limits: Limits) -> tuple[dict[tuple[int, int], Tensor], list[Any], int]:
    """The logits of every sample, tokens with scores, and how often somebody was preempted."""
    model = build_model(config, CudaOps(exact=True), DummyTensors(config), torch.float32, CPU, config.max_model_len)
    runner = CudaRunner(model, KvCache(config, limits.num_blocks, 4, torch.float32, CPU), CPU, limits, exact=True)
    rows: dict[tuple[int, int], Tensor] = {}

    def see(requests: Any, positions: Any, logits: Tensor) -> None:
        rows.update(zip(zip(requests, positions, strict=True), logits.clone(), strict=True))

    runner.on_logits = see
    engine = Engine(Scheduler(limits, Fcfs()), runner, CountingClock())
    for i, length in enumerate((19, 3, 7, 12)):
        prompt = [(7 * i * place + place) % 61 for place in range(length)]
        engine.add((make_request(i, prompt, 4, temperature=0.0 if i % 2 else 0.7, logprobs=3),))
    told, num_preempted = [], 0
    while engine.has_work:
        for event in engine.step():
            num_preempted += isinstance(event, Preempted)
            if isinstance(event, Token):
                told.append((event.request, event.token, event.score))
    return rows, sorted(told, key=lambda one: one[0]), num_preempted


@pytest.mark.nightly
@pytest.mark.parametrize("config", [PLAIN, DECLARED], ids=["plain", "declared"])
def test_logits_tokens_and_scores_have_the_same_bits_however_steps_come_about(config: ModelConfig) -> None:
    alone, told, _ = run(config, replace(LIMITS, max_running=1))
    assert len(alone) == 16
    for limits in (LIMITS, replace(LIMITS, max_step_tokens=7, num_blocks=7)):
        rows, same, num_preempted = run(config, limits)
        assert (num_preempted > 0) is (limits.num_blocks < 80)
        assert {place for place, row in alone.items() if not torch.equal(row, rows[place])} == set()
        assert same == told
