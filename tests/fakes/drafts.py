"""Drafts that are right at random: of any length, wrong from any place on, or none; the same for the same text."""

import random
from collections.abc import Mapping, Sequence

from chairlift.core.ids import RequestId
from chairlift.core.request import Request
from fakes.ledger import expected


class ToldDrafter:
    """Was told what each request gets."""

    def __init__(self, outputs: Mapping[RequestId, Sequence[int]], vocab_size: int, seed: int = 0) -> None:
        self._outputs = outputs
        self._vocab_size = vocab_size
        self._seed = seed

    def draft(self, request: Request, tokens: Sequence[int], count: int) -> Sequence[int]:
        rng = random.Random(f"{self._seed} {request.id} {len(tokens)}")
        share = rng.choice([0.0, 0.5, 0.9, 1.0])
        right = self.output(request)[len(tokens) - len(request.prompt) :]
        drafts = [*right, *(rng.randrange(self._vocab_size) for _ in range(count))][: rng.randint(0, count + 2)]
        return [token if rng.random() < share else rng.randrange(self._vocab_size) for token in drafts]

    def output(self, request: Request) -> Sequence[int]:
        return self._outputs[request.id]


class RandomDrafter(ToldDrafter):
    """Knows what a request gets on the ledger runner."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self._known: dict[Request, list[int]] = {}
        super().__init__({}, vocab_size, seed)

    def output(self, request: Request) -> Sequence[int]:
        if request not in self._known:
            self._known[request] = expected(request, self._vocab_size)
        return self._known[request]
