"""Requests move between two runners on a GPU with their keys and values, while further steps are in flight."""

from functools import partial
from typing import Any

import pytest
import torch

from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.ports import Runner
from chairlift.models.spec import uniform_model
from chairlift.runner.kernels import make_ops, make_runner
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.requests import make_request
from fakes.worlds.moves import moves_after
from fakes.worlds.world import Arrivals, Tokens, World

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
PREEMPTION = Preemption(num_host_blocks=64)


class Triton:
    def __init__(self, dtype: torch.dtype, kv_dtype: torch.dtype) -> None:
        self._dtype, self._kv_dtype = dtype, kv_dtype

    def make(self, world: World) -> Runner:
        device, exact = torch.device("cuda"), self._kv_dtype is self._dtype
        ops = make_ops("triton", 1, exact=exact)
        model = build_model(CONFIG, ops, DummyTensors(CONFIG), self._dtype, device, CONFIG.max_model_len)
        kv = KvCache(CONFIG, LIMITS.num_blocks, LIMITS.block_size, self._kv_dtype, device, num_host_blocks=64)
        return make_runner("triton", model, kv, device, LIMITS, exact=exact)

    def alone(self, arrivals: Arrivals, limits: Limits) -> Tokens:
        """Without a move."""
        world = World(limits, self, arrivals=arrivals, preemption=PREEMPTION).drive()
        return world.outputs()


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
    draw = partial(World, LIMITS, Triton(dtype, kv_dtype), preemption=PREEMPTION)
    world = draw([moves_after(draw, 5)], arrivals={0: [(request,) for request in requests]}).run()
    assert world.counts["moved tokens"] > sum(len(request.prompt) for request in requests) // 2
