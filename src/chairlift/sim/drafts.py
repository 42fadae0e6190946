"""Drafts of a simulated run, where no token means anything: each is right with the same probability, if those before it
are. Deterministic: what is right is drawn from the given source."""

import random
from collections.abc import Sequence

from chairlift.core.request import Request

TOKEN = 0  # what everybody samples


class SimDrafts:
    """A drafter, and what its drafts turn out to be."""

    def __init__(self, acceptance: float, rng: random.Random) -> None:
        self._acceptance = acceptance
        self._rng = rng

    def draft(self, request: Request, tokens: Sequence[int], count: int) -> Sequence[int]:
        return (TOKEN,) * count

    def num_right(self, num_drafts: int) -> int:
        """How many of so many are, up to the first that is not."""
        return next((i for i in range(num_drafts) if self._rng.random() >= self._acceptance), num_drafts)
