"""The earliest deadline first; who has none is due `default` seconds after coming.

Bound: nobody is passed by a request that comes after its own deadline, met or not.
"""

from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import Standing
from chairlift.core.queue import Rank


class Deadline(Ranked):
    def __init__(self, default: float = 60.0) -> None:
        super().__init__()
        if default < 0:
            raise ValueError(f"default={default}: must not be negative")
        self._default = default

    def rank(self, standing: Standing) -> Rank:
        given = standing.request.attributes.deadline_s
        return (standing.arrival + (self._default if given is None else given), standing.arrival)

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """The one with the most time left, of those the newest."""
        return max(running, key=lambda s: (*self.rank(s), s.id)).id
