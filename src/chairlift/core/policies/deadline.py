"""The earliest deadline first; a request without one is due `default` seconds after its arrival.

Bound: no request is overtaken by one that arrives after its deadline, met or not.
"""

from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import RequestView
from chairlift.core.scheduling.queue import Rank


class Deadline(Ranked):
    def __init__(self, default: float = 60.0) -> None:
        super().__init__()
        if default < 0:
            raise ValueError("default must not be negative")
        self._default = default

    def rank(self, view: RequestView) -> Rank:
        given = view.request.attributes.deadline_s
        return (view.arrival + (self._default if given is None else given), view.arrival)

    def victim_rank(self, view: RequestView) -> Rank:
        return self.rank(view)
