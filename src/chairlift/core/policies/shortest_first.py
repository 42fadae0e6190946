"""The shortest request first: the best mean latency, while long ones wait.

Length is expected output, prompt or both (`by`); expected output is max_tokens, or what the user's requests needed.
No bound: a long request waits while shorter ones keep arriving. `mlfq` has a bound.
"""

from chairlift.core.policies.by_length import check_measure, length_of
from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import RequestView
from chairlift.core.scheduling.queue import Rank


class ShortestFirst(Ranked):
    def __init__(self, by: str = "output") -> None:
        super().__init__()
        check_measure(by)
        self._by = by

    def rank(self, view: RequestView) -> Rank:
        return (length_of(view, self._by), view.arrival)

    def victim_rank(self, view: RequestView) -> Rank:
        """The request with the most tokens left."""
        return (view.expected_output - view.num_output, view.arrival)
