"""A random world whose runner's memory is too small now and then."""

import random

from chairlift.core.plan import StepPlan
from fakes.world import World, random_world


def full_world(seed: int, least: int = 2, share: float = 0.25, drafts: bool = False, windows: bool = False) -> World:
    """A share of the steps of at least so many tokens does not fit."""
    world, rng = random_world(seed, drafts=drafts, windows=windows), random.Random(-seed)

    def is_too_large(plan: StepPlan) -> bool:
        return plan.num_tokens >= least and rng.random() < share

    world.runner.is_too_large = is_too_large
    world.runner.depth = rng.randint(1, 3)
    return world
