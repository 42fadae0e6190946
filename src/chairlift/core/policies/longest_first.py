"""The longest request first: nothing long is left to run alone at the end.

Length is expected output, prompt or both (`by`); expected output is max_tokens, or what the user's requests needed.
No bound: as long as longer ones keep coming, a short one waits. For work that has an end, not for a steady stream.
"""

from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policies.by_length import check_measure, length_of
from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import Standing
from chairlift.core.queue import Rank


class LongestFirst(Ranked):
    def __init__(self, by: str = "output") -> None:
        super().__init__()
        check_measure(by)
        self._by = by

    def rank(self, standing: Standing) -> Rank:
        return (-length_of(standing, self._by), standing.arrival)

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """The one with the least computed: it loses the least."""
        return min(running, key=lambda s: (s.num_computed, -s.arrival, -s.id)).id
