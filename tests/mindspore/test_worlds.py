"""Scheduling never changes tokens on MindSpore either: a crowd in its engine, against each request alone on torch."""

from dataclasses import replace

import pytest
import torch

from chairlift.core.events import Forked, Preempted
from chairlift.core.memory.preemption import Preemption
from fakes.crowds import crowd, with_searches
from fakes.drafts import ToldDrafter
from fakes.worlds.models import CONFIG, TinyModel, world_limits
from fakes.worlds.world import World

CROWDED = {"max_running": 5, "max_step_tokens": 17}
SWAP = Preemption(mode="swap", num_host_blocks=400)


ON_TORCH = TinyModel(torch.float64)
ARRIVALS = with_searches(crowd(1), 1)


@pytest.mark.parametrize("block_size", [1, 4])
@pytest.mark.parametrize("preemption", [Preemption(), SWAP], ids=lambda preemption: preemption.mode)
def test_preempted_chunked_forked_cached_and_searching_requests_get_the_tokens_of_torch(
    preemption: Preemption, block_size: int
) -> None:
    from fakes.worlds.mindspore import MindSporeModel

    limits = world_limits(80 // block_size, block_size, **CROWDED)
    world = World(limits, MindSporeModel(like=ON_TORCH), arrivals=ARRIVALS, preemption=preemption).run()
    happened = world.happened
    assert min(happened[Preempted], happened[Forked], happened["hit"]) > 0, "the world was too easy to show anything"
    assert (happened["swap"] > 0) is (preemption.mode == "swap")


def test_drafts_change_no_token() -> None:
    from fakes.worlds.mindspore import MindSporeModel

    limits = replace(world_limits(20, 4, **CROWDED), max_drafts=4)
    drafter = ToldDrafter(ON_TORCH.alone(ARRIVALS), CONFIG.vocab_size)
    world = World(limits, MindSporeModel(like=ON_TORCH), arrivals=ARRIVALS, drafter=drafter).run()
    happened = world.happened
    assert min(happened[Preempted], happened[Forked], happened["hit"]) > 0 and happened["more"] > 30
