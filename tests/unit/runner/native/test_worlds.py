"""Samples, searches, cached prefixes and swapping with the native kernels, in blocks of any size."""

from functools import cache

import pytest
import torch

from chairlift.core.events import Forked, Preempted
from chairlift.core.memory.preemption import Preemption
from chairlift.runner.native.ops import NativeOps, available
from fakes.crowds import crowd, with_searches
from fakes.worlds.models import TinyModel, world_limits
from fakes.worlds.world import World

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built or not for this processor")
SWAP = Preemption(mode="swap", num_host_blocks=400)


ARRIVALS = with_searches(crowd(1), 1)


@cache
def model_of(dtype: torch.dtype, kv_dtype: torch.dtype) -> TinyModel:
    return TinyModel(dtype, ops=NativeOps(2), kv_dtype=kv_dtype)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("block_size", [1, 2, 4, 16])
@pytest.mark.parametrize(
    ("dtype", "kv_dtype"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.float32, torch.int8)],
    ids=str,
)
def test_requests_in_a_batch_get_the_tokens_they_get_alone(
    dtype: torch.dtype, kv_dtype: torch.dtype, block_size: int
) -> None:
    limits = world_limits(80 // block_size, block_size, max_running=5, max_step_tokens=17)
    world = World(limits, model_of(dtype, kv_dtype), arrivals=ARRIVALS, preemption=SWAP).run()
    happened = world.happened
    assert min(happened[Preempted], happened[Forked], happened["hit"], happened["swap"]) > 0
