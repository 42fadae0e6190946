"""A random world whose requests have adapters, more of them than there are slots."""

import random
from dataclasses import replace

from fakes.world import World, random_world


def adapter_world(seed: int, is_full: bool = False, windows: bool = False) -> World:
    """With `is_full` some steps do not fit the runner's memory, or fail."""
    world = random_world(seed, drafts=seed % 5 == 0, windows=windows)
    rng = random.Random(f"adapters {seed}")
    limits = replace(world.limits, num_adapter_slots=rng.randint(1, 3))
    adapters = [0, *range(1, rng.randint(2, 6))]
    arrivals = {}
    for step, groups in world.arrivals.items():
        arrivals[step] = [_adapted(samples, rng.choice(adapters)) for samples in groups]
    world = replace(world, limits=limits, arrivals=arrivals)
    if is_full:
        world.runner.is_too_large = lambda plan: plan.num_tokens >= 2 and rng.random() < 0.25
    return world


def _adapted(samples, adapter):
    return tuple(replace(each, attributes=replace(each.attributes, adapter=adapter)) for each in samples)
