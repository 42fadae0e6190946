"""A scheduling policy of your own: small talk first.

    chairlift simulate --workload FILE --policy examples.my_policy:SmallTalkFirst
    chairlift serve --policy examples.my_policy:SmallTalkFirst:words=200,share=0.5

Prompts of up to `words` tokens step on before longer ones, as long as small talk has had no more than `share` of the
last turns: so nobody waits for ever. A policy sees requests through a read-only view (`chairlift.core.policy.Standing`)
and never touches memory; what it may ask and must answer is in that file. No clock and no randomness: time comes in as
`now`, and the same requests give the same order, live and in the simulator.
"""

from collections import OrderedDict
from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policy import Standing


class SmallTalkFirst:
    def __init__(self, words: int = 100, share: float = 0.8) -> None:  # the parameters, with their types and defaults
        if words < 1 or not 0 <= share < 1:
            raise ValueError("words must be at least 1, share between 0 and below 1")
        self._words = words
        self._share = share
        self._queues: tuple[OrderedDict[RequestId, None], ...] = (OrderedDict(), OrderedDict())  # long, small
        self._recent = 0.0  # share of small talk in the last turns

    def _is_small(self, standing: Standing) -> bool:
        return len(standing.request.prompt) <= self._words

    def push(self, standing: Standing, now: float) -> None:
        """A request begins to wait."""
        self._queues[self._is_small(standing)][standing.id] = None

    def first(self, now: float) -> RequestId | None:
        """Who steps on next. Cheap, for it is asked in every step: no look at everybody who waits."""
        long, small = self._queues
        queue = small if small and (self._recent <= self._share or not long) else long
        return next(iter(queue), None)

    def remove(self, standing: Standing) -> None:
        """It stepped on, or is gone."""
        is_small = self._is_small(standing)
        del self._queues[is_small][standing.id]
        self._recent += 0.1 * (is_small - self._recent)

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """Memory ran out: the longest prompt steps off, of those the newest."""
        return max(running, key=lambda standing: (len(standing.request.prompt), standing.arrival, standing.id)).id
