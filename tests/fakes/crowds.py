"""Groups of requests that get in each other's way: shared prefixes, several samples, searches, long prompts."""

import random

from fakes.requests import make_samples, make_search
from fakes.worlds.models import CONFIG
from fakes.worlds.world import Arrivals


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


def with_searches(arrivals: Arrivals, seed: int) -> Arrivals:
    """The same, and beam searches among them; some end by a stop token."""
    rng = random.Random(seed)
    more = {step: list(groups) for step, groups in arrivals.items()}
    for i in range(4):
        prompt = [rng.randrange(CONFIG.vocab_size) for _ in range(rng.randint(3, 14))]
        stops = frozenset(rng.sample(range(CONFIG.vocab_size), 4 * (i % 2)))
        search = make_search(1000 + 10 * i, prompt, 2 + i % 2, max_output=8, n=2, stop_ids=stops)
        more.setdefault(rng.randint(0, 6), []).append(search)
    return more
