"""Scheduling never changes tokens, on a real model: a tiny decoder in float64, where rounding cannot hide a mistake."""

from dataclasses import replace

import pytest
import torch

from chairlift.core.events import Forked, Preempted
from chairlift.core.memory.preemption import Preemption
from fakes.crowds import crowd, with_searches
from fakes.drafts import ToldDrafter
from fakes.worlds.models import CONFIG, TinyModel, world_limits
from fakes.worlds.world import Arrivals, World

CROWDED = {"max_running": 5, "max_step_tokens": 17}
RECOMPUTE = Preemption()
SWAP = Preemption(mode="swap", num_host_blocks=400)
# Copying a block costs as much as computing five tokens, so few short texts are moved and most are computed again.
AUTO = Preemption(mode="auto", num_host_blocks=20, block_copy_s=5.0, step_times=((1, 9.0), (2, 10.0)))


MODEL = TinyModel(torch.float64)
ARRIVALS: Arrivals = with_searches(crowd(1), 1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block_size", [1, 2, 4, 16])
@pytest.mark.parametrize("preemption", [RECOMPUTE, SWAP, AUTO], ids=lambda preemption: preemption.mode)
def test_preempted_chunked_forked_cached_and_searching_requests_get_the_tokens_they_get_alone(
    preemption: Preemption, block_size: int
) -> None:
    limits = world_limits(80 // block_size, block_size, **CROWDED)
    world = World(limits, MODEL, arrivals=ARRIVALS, preemption=preemption).run()
    happened = world.happened
    assert min(happened[Preempted], happened[Forked], happened["hit"]) > 0, "the world was too easy to show anything"
    assert (happened["swap"] > 0) is (preemption.mode == "swap" or (preemption.mode == "auto" and block_size > 4))


@pytest.mark.parametrize("preemption", [RECOMPUTE, SWAP], ids=lambda preemption: preemption.mode)
def test_drafts_change_no_token(preemption: Preemption) -> None:
    """Greedy and sampled, with penalties, several samples, searches and preemptions."""
    limits = replace(world_limits(20, 4, **CROWDED), max_drafts=4)
    drafter = ToldDrafter(MODEL.alone(ARRIVALS), CONFIG.vocab_size)
    world = World(limits, MODEL, arrivals=ARRIVALS, preemption=preemption, drafter=drafter).run()
    happened = world.happened
    assert min(happened[Preempted], happened[Forked], happened["hit"]) > 0 and happened["more"] > 30
