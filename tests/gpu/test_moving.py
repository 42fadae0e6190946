"""Requests move between two runners on a GPU with their keys and values, while further steps are in flight."""

from typing import Any

import pytest
import torch

from chairlift.core.limits import Limits
from chairlift.core.ports import Runner
from chairlift.models.spec import uniform_model
from chairlift.runner.kernels import make_ops, make_runner
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.moved_requests import engine_of, run_apart, run_moved
from fakes.requests import make_request

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
LIMITS = Limits(vocab_size=997, max_model_len=1120, block_size=16, num_blocks=128, max_running=8, max_step_tokens=256)


def make(dtype: torch.dtype, kv_dtype: torch.dtype) -> Runner:
    device = torch.device("cuda")
    ops = make_ops("triton", 1, exact=kv_dtype is dtype)
    model = build_model(CONFIG, ops, DummyTensors(CONFIG), dtype, device, CONFIG.max_model_len)
    kv = KvCache(CONFIG, LIMITS.num_blocks, LIMITS.block_size, kv_dtype, device, num_host_blocks=64)
    return make_runner("triton", model, kv, device, LIMITS, exact=kv_dtype is dtype)


@pytest.mark.parametrize(
    ("num_requests", "dtype", "kv_dtype"),
    [
        (1, torch.float32, torch.float32),  # the plan that moves it out computes nothing
        (6, torch.float32, torch.float32),
        (6, torch.bfloat16, torch.bfloat16),
        (1, torch.bfloat16, torch.float8_e4m3fn),  # not exact: alone it is
    ],
)
def test_a_moved_request_gets_the_tokens_of_one_that_stays(
    num_requests: int, dtype: torch.dtype, kv_dtype: torch.dtype
) -> None:
    requests = [
        make_request(i, range(3 * i, 40 + 60 * i), 40 + i, temperature=0.0, frequency_penalty=0.1 * i)
        for i in range(1, num_requests + 1)
    ]
    apart = run_apart(engine_of(make(dtype, kv_dtype), LIMITS, 64), requests)
    source, target = (engine_of(make(dtype, kv_dtype), LIMITS, 64) for _ in range(2))
    moved, num_moved = run_moved(source, target, requests, num_tokens=5)
    assert moved == apart
    assert num_moved > sum(len(request.prompt) for request in requests) // 2
