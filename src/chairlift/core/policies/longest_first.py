"""The longest request first, so that no long one runs alone at the end.

Length is expected output, prompt or both (`by`); expected output is max_tokens, or what the user's requests needed.
No bound: a short request waits while longer ones keep arriving. For a batch of work, not for a steady stream.
"""

from chairlift.core.policies.by_length import check_measure, length_of
from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import RequestView
from chairlift.core.scheduling.queue import Rank


class LongestFirst(Ranked):
    def __init__(self, by: str = "output") -> None:
        super().__init__()
        check_measure(by)
        self._by = by

    def rank(self, view: RequestView) -> Rank:
        return (-length_of(view, self._by), view.arrival)

    def victim_rank(self, view: RequestView) -> Rank:
        """The request with the fewest computed tokens: it loses the least."""
        return (-view.num_computed, view.arrival)
