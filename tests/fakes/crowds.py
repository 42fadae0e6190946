"""Groups of requests that get in each other's way: shared prefixes, several samples, long prompts, sampling and not."""

import random

from fakes.model_world import CONFIG, Arrivals
from fakes.requests import make_samples


def crowd(seed: int) -> Arrivals:
    rng = random.Random(seed)
    vocab = CONFIG.vocab_size
    shared = [rng.randrange(vocab) for _ in range(40)]
    arrivals: Arrivals = {}
    for i in range(10):
        prompt = shared[: rng.randint(5, 40)] if i % 2 else [rng.randrange(vocab) for _ in range(rng.randint(1, 40))]
        more = {"temperature": 0.0} if i % 3 else {"temperature": 0.9, "seed": 5, "repetition_penalty": 1.3}
        group = make_samples(10 * i, prompt, n=1 + 2 * (i % 4 == 0), max_output=12, **more)
        arrivals.setdefault(rng.randint(0, 6), []).append(group)
    return arrivals
