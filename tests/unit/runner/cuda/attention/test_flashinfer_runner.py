"""The CUDA runner with all attention by a stand-in for FlashInfer: none of our own kernels for it is launched."""

import os
import sys
from types import SimpleNamespace

import pytest
import torch

from chairlift.core.engine import Engine
from chairlift.core.events import PromptScored, Token
from chairlift.core.limits import Limits
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import Runner
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.spec import uniform_model
from chairlift.runner.cuda import ops
from chairlift.runner.cuda.attention.flashinfer import FlashKernels
from chairlift.runner.cuda.step import layout
from chairlift.runner.kernels import make_ops, make_runner
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.clocks import CountingClock
from fakes.flashinfer_library import make_library
from fakes.requests import make_request

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("no_gpu"),
]

CPU = torch.device("cpu")
LIMITS = Limits(vocab_size=17, max_model_len=32, block_size=2, num_blocks=60, max_running=3, max_step_tokens=9)


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in make_library([]).items():
        monkeypatch.setitem(sys.modules, name, module)
    processors = SimpleNamespace(multi_processor_count=4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: processors)


def answers(kernels: str, kv_heads: int, has_flash: bool = False) -> list[tuple[int, object]]:
    """Tokens and scores of prompts in the order of requests."""
    config = uniform_model(
        architecture="LlamaForCausalLM", hidden_size=32, num_layers=2, num_heads=2, num_kv_heads=kv_heads, head_dim=16,
        intermediate_size=16, vocab_size=17, max_model_len=32, rms_norm_eps=1e-5, rope_theta=10000.0,
    )  # fmt: skip
    model = build_model(config, make_ops(kernels, 1), DummyTensors(config), torch.float32, CPU, 32)
    kv = KvCache(config, LIMITS.num_blocks, LIMITS.block_size, torch.float32, CPU)
    flash = FlashKernels(config.layers[0].attention, LIMITS.block_size, torch.float32, CPU) if has_flash else None
    runner: Runner = make_runner(kernels, model, kv, CPU, LIMITS, flash)
    engine = Engine(Scheduler(LIMITS, Fcfs()), runner, CountingClock())
    engine.add((make_request(1, [1, 2, 3] * 4, 3, temperature=0.0),))
    engine.add((make_request(2, [4, 5], 6, temperature=0.0),))
    engine.add((make_request(3, [6, 7, 8], 3, temperature=0.0, prompt_logprobs=0),))
    told: list[tuple[int, object]] = []
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, Token):
                told.append((event.request, event.token))
            elif isinstance(event, PromptScored):
                told.append((event.request, [round(score.logprob, 3) for score in event.scores]))
    return sorted(told, key=lambda one: one[0])


@pytest.mark.parametrize("kv_heads", [pytest.param(2, marks=pytest.mark.slow), 1])
def test_answers_are_those_of_torch(monkeypatch: pytest.MonkeyPatch, kv_heads: int) -> None:
    monkeypatch.setattr(layout, "MAX_ROW_PAIRS", 20)  # so that there are tiles of queries, too
    wanted = answers("torch", kv_heads)
    monkeypatch.setattr(ops.CudaOps, "_attend_prompts", None)
    monkeypatch.setattr(ops.CudaOps, "_attend_by_row", None)
    monkeypatch.setattr(ops, "attend_one_row", None)
    assert answers("triton", kv_heads, has_flash=True) == wanted
