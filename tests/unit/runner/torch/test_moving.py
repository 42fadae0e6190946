"""Requests move between two real runners with their keys and values: the same bits, so the same tokens."""

from functools import partial

import pytest
import torch

from chairlift.core.memory.preemption import Preemption
from chairlift.runner.native.ops import NativeOps
from chairlift.runner.ops import Ops
from chairlift.runner.torch.ops import TorchOps
from fakes.requests import make_request
from fakes.worlds.models import TinyModel, world_limits
from fakes.worlds.moves import moves_after
from fakes.worlds.world import World

LIMITS = world_limits(32, 4, 4, 64)


@pytest.mark.parametrize(
    ("ops", "dtype", "kv_dtype"),
    [
        (TorchOps(exact=True), torch.float32, torch.float32),
        (TorchOps(exact=True), torch.bfloat16, torch.bfloat16),
        (NativeOps(1), torch.float32, torch.float32),
        (NativeOps(1), torch.float32, torch.int8),
    ],
    ids=["torch float32", "torch bfloat16", "native", "native with int8 cache"],
)
def test_a_moved_request_gets_the_tokens_of_one_that_stays(ops: Ops, dtype: torch.dtype, kv_dtype: torch.dtype) -> None:
    model = TinyModel(dtype, ops=ops, kv_dtype=kv_dtype)
    requests = [
        make_request(1, range(20), 20, temperature=0.0),
        make_request(2, range(5, 12), 24, temperature=0.9, seed=3),
        make_request(3, range(40, 43), 12, temperature=0.8, seed=4, frequency_penalty=0.5),
    ]
    draw = partial(World, LIMITS, model, preemption=Preemption(num_host_blocks=24))
    world = draw([moves_after(draw, 6)], arrivals={0: [(request,) for request in requests]}).run()
    assert world.counts["moved"] == 3
    assert world.counts["moved tokens"] > 20 + 7 + 3
