"""Beam search over one prompt: which continuations go on. The scheduler moves the blocks.

Each member of the search offers its most likely next tokens. Once all have offered, `decide` ranks the continuations by
the sum of their log-probabilities. Of the best `width`, those that end (all of them at the length limit) go among the
ended ones; the best that go on become the next members. The search ends when `width` continuations have ended; their
scores are sums divided by length to the power of the penalty. The same answers as Hugging Face's `generate` with
`num_beams=width, early_stopping=True`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from chairlift.core.ids import RequestId
from chairlift.core.request import FinishReason

Offer = Sequence[tuple[int, float]]  # (token, log-probability), most likely first


class Branch(NamedTuple):
    parent: RequestId
    token: int


class Ended(NamedTuple):
    tokens: tuple[int, ...]  # output only
    score: float
    finish: FinishReason


class Beams:
    def __init__(self, members: Sequence[RequestId], length_penalty: float, stop_ids: frozenset[int]) -> None:
        self.width = len(members)
        self.members = list(members)
        self.ended: list[Ended] = []
        self._penalty = length_penalty
        self._stop_ids = stop_ids
        # Before the first decision there is only the prompt, and every member offers the same.
        self._sums: dict[RequestId, float] = {members[0]: 0.0}
        self._offers: dict[RequestId, Offer] = {}

    @property
    def num_offered(self) -> int:
        """Candidates each member has to offer so that enough of them go on."""
        return self.width * max(2, 1 + len(self._stop_ids))

    def offer(self, member: RequestId, tokens: Offer) -> bool:
        """True when every member has offered."""
        self._offers[member] = tokens
        return len(self._offers) == len(self.members)

    def decide(self, outputs: dict[RequestId, tuple[int, ...]], is_last: bool) -> list[Branch]:
        """The next members as branches of the present ones, best first; none when the search is over."""
        offers, self._offers = self._offers, {}
        candidates = [
            (total + logprob, parent, token)
            for parent, total in self._sums.items()
            for token, logprob in offers[parent]
        ]
        # Of equals, the better parent's, then the likelier.
        ranked = sorted(candidates, key=lambda candidate: -candidate[0])
        branches: list[Branch] = []
        sums: list[float] = []
        for place, (total, parent, token) in enumerate(ranked[: self.num_offered]):
            is_stop = token in self._stop_ids
            if is_stop or is_last:
                if place < self.width:
                    finish = FinishReason.STOP if is_stop else FinishReason.LENGTH
                    self._end((*outputs[parent], token), total, finish)
            elif len(branches) < self.width:
                branches.append(Branch(parent, token))
                sums.append(total)
        if len(self.ended) >= self.width:
            return []
        self._next_sums = sums
        return branches

    def assign(self, members: Sequence[RequestId]) -> None:
        """The members that carry the branches of the last decision, in their order."""
        self.members = list(members)
        self._sums = dict(zip(members, self._next_sums, strict=True))

    def best(self, count: int) -> list[Ended]:
        return sorted(self.ended, key=lambda ended: (-ended.score, ended.tokens))[:count]

    def _end(self, tokens: tuple[int, ...], total: float, finish: FinishReason) -> None:
        self.ended.append(Ended(tokens, total / len(tokens) ** self._penalty, finish))
