"""The plain torch path on a CUDA device gives what it gives on a CPU."""

import pytest
import torch

from chairlift.core.events import Forked, Preempted
from chairlift.core.memory.preemption import Preemption
from fakes.crowds import crowd, with_searches
from fakes.worlds.models import TinyModel, world_limits
from fakes.worlds.world import World

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_a_crowd_gets_the_same_tokens_on_the_gpu_as_on_the_cpu(block_size: int) -> None:
    limits = world_limits(80 // block_size, block_size, max_running=5, max_step_tokens=17)
    arrivals = with_searches(crowd(block_size), block_size)
    for preemption in (Preemption(), Preemption(mode="swap", num_host_blocks=400)):
        model = TinyModel(torch.float64, "cuda", like=TinyModel(torch.float64))
        world = World(limits, model, arrivals=arrivals, preemption=preemption).run()
        happened = world.happened
        assert min(happened[Preempted], happened[Forked], happened["hit"]) > 0
        assert (happened["swap"] > 0) is (preemption.mode == "swap")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_request_is_completed_in_every_dtype(dtype: torch.dtype) -> None:
    arrivals = crowd(3)
    limits = world_limits(20, 4, max_running=5, max_step_tokens=17)
    world = World(limits, TinyModel(dtype, "cuda"), arrivals=arrivals).drive()
    tokens = world.outputs()
    requests = [request for groups in arrivals.values() for group in groups for request in group]
    assert {len(tokens[request.id]) for request in requests} == {12}
