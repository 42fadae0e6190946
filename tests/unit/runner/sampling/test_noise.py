import random

import numpy as np

from chairlift.runner.sampling.noise import stream, uniforms
from fakes.sampled import uniform


def test_many_numbers_at_once_are_those_drawn_one_by_one() -> None:
    rng = random.Random(0)
    names = [(rng.randrange(-(2**63), 2**64), rng.randrange(200), rng.randrange(1 << 20)) for _ in range(50)]
    streams = np.array([stream(seed, index) for seed, index, _ in names], np.uint64)
    many = uniforms(streams, np.array([position for _, _, position in names]), range(9))
    assert many.tolist() == [[uniform(*name, attempt) for attempt in range(9)] for name in names]
