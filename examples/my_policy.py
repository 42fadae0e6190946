"""A scheduling policy of your own: short prompts first, up to a share of the admissions.

    chairlift simulate --workload FILE --policy examples.my_policy:SmallTalkFirst
    chairlift serve --policy examples.my_policy:SmallTalkFirst:words=200,share=0.5

Prompts of up to `words` tokens are admitted before longer ones while they have had at most `share` of the last
admissions, so that no request waits for ever. docs/add-a-policy.md says what each method is for.
"""

from collections import OrderedDict
from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policy import Policy, RequestView


class SmallTalkFirst(Policy):
    def __init__(self, words: int = 100, share: float = 0.8) -> None:  # the parameters, with their types and defaults
        if words < 1 or not 0 <= share < 1:
            raise ValueError("words must be at least 1, share between 0 and below 1")
        self._words = words
        self._share = share
        self._queues: tuple[OrderedDict[RequestId, None], ...] = (OrderedDict(), OrderedDict())  # long, short
        self._recent = 0.0  # share of short prompts in the last admissions

    def _is_short(self, view: RequestView) -> bool:
        return len(view.request.prompt) <= self._words

    def push(self, view: RequestView, now: float) -> None:
        """A request begins to wait."""
        self._queues[self._is_short(view)][view.id] = None

    def first(self, now: float) -> RequestId | None:
        """The request to admit next. Asked in every step, so it must not look at every waiting request."""
        long, short = self._queues
        queue = short if short and (self._recent <= self._share or not long) else long
        return next(iter(queue), None)

    def remove(self, view: RequestView) -> None:
        """A request was admitted, or has ended."""
        is_short = self._is_short(view)
        del self._queues[is_short][view.id]
        self._recent += 0.1 * (is_short - self._recent)

    def victim(self, running: Iterable[RequestView], now: float) -> RequestId:
        """Memory ran out: preempt the longest prompt, ties by the newest."""
        return max(running, key=lambda view: (len(view.request.prompt), view.arrival, view.id)).id
