"""Scheduling never changes tokens, on a real model: a tiny decoder in float64, where rounding cannot hide a mistake."""

import pytest
import torch

from chairlift.core.events import Forked, Preempted
from fakes.crowds import crowd
from fakes.model_world import ModelWorld, world_limits


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_preempted_chunked_forked_and_cached_requests_get_the_tokens_they_get_alone(block_size: int) -> None:
    world, arrivals = ModelWorld(torch.float64), crowd(block_size)
    crowded, kinds = world.run(world_limits(80 // block_size, block_size, max_running=5, max_step_tokens=17), arrivals)
    assert min(kinds[Preempted], kinds[Forked], kinds["hit"]) > 0, "the world was too easy to show anything"
    roomy = world_limits(64 // block_size, block_size, max_running=1, max_step_tokens=64)
    for request in (request for groups in arrivals.values() for group in groups for request in group):
        alone, _ = world.run(roomy, {0: [(request,)]})
        assert crowded[request.id] == alone[request.id], f"request {request.id}"
