"""Scheduling never changes tokens on MindSpore either: a crowd in its engine, against each request alone on torch."""

from dataclasses import replace
from functools import lru_cache

import pytest
import torch

from chairlift.core.events import Forked, Preempted
from chairlift.core.scheduling.preemption import Preemption
from fakes.crowds import crowd, with_searches
from fakes.drafts import ToldDrafter
from fakes.model_world import CONFIG, Arrivals, ModelWorld, Tokens, world_limits

CROWDED = {"max_running": 5, "max_step_tokens": 17}
SWAP = Preemption(mode="swap", num_host_blocks=400)


@lru_cache(maxsize=1)
def crowd_and_tokens_alone() -> tuple[Arrivals, Tokens]:
    arrivals = with_searches(crowd(1), 1)
    return arrivals, ModelWorld(torch.float64).run_apart(arrivals)


@pytest.mark.parametrize("block_size", [1, 4])
@pytest.mark.parametrize("preemption", [Preemption(), SWAP], ids=lambda preemption: preemption.mode)
def test_preempted_chunked_forked_cached_and_searching_requests_get_the_tokens_of_torch(
    preemption: Preemption, block_size: int
) -> None:
    from fakes.mindspore_world import MindSporeWorld

    arrivals, alone = crowd_and_tokens_alone()
    limits = world_limits(80 // block_size, block_size, **CROWDED)
    crowded, kinds = MindSporeWorld().run(limits, arrivals, preemption)
    assert min(kinds[Preempted], kinds[Forked], kinds["hit"]) > 0, "the world was too easy to show anything"
    assert (kinds["swap"] > 0) is (preemption.mode == "swap")
    assert crowded == alone


def test_drafts_change_no_token() -> None:
    from fakes.mindspore_world import MindSporeWorld

    arrivals, alone = crowd_and_tokens_alone()
    limits = replace(world_limits(20, 4, **CROWDED), max_drafts=4)
    crowded, kinds = MindSporeWorld().run(limits, arrivals, drafter=ToldDrafter(alone, CONFIG.vocab_size))
    assert min(kinds[Preempted], kinds[Forked], kinds["hit"]) > 0 and kinds["more"] > 30
    assert crowded == alone
