"""Drafts of a simulated run: each is accepted with the same probability if those before it are, drawn from the given
random source."""

import random
from collections.abc import Sequence

from chairlift.core.request import Request

TOKEN = 0  # sampled for every request


class SimDrafts:
    """A drafter, and how many of its drafts are accepted."""

    def __init__(self, acceptance: float, rng: random.Random) -> None:
        self._acceptance = acceptance
        self._rng = rng

    def draft(self, request: Request, tokens: Sequence[int], count: int) -> Sequence[int]:
        return (TOKEN,) * count

    def num_right(self, num_drafts: int) -> int:
        """Drafts that are accepted, up to the first that is not."""
        return next((i for i in range(num_drafts) if self._rng.random() >= self._acceptance), num_drafts)
