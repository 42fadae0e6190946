"""Step on when the predicted peak of all running requests fits.

They do not all need their most at the same time: those that end sooner give their blocks back. With the requests
sorted by what is left to do, longest first, the need at the moment the i-th ends is what the first i hold by then; the
largest of these is the peak. A guess that was too low is made good by preemption.
"""

from bisect import bisect_right
from itertools import accumulate, count
from operator import mul, sub

from chairlift.core.admission.placed import num_placed, num_places
from chairlift.core.policy import MemoryView, Standing


class Peak:
    def __init__(self) -> None:
        # Of all that run and their unborn samples, longest first: tokens left to do, negative, and tokens held.
        self._left: list[int] = []
        self._held: list[int] = []
        self._most = 0  # the peak, or more
        self._num_held = 0  # blocks; those that are shared count once for each table, here as below

    def look(self, memory: MemoryView) -> None:
        size = memory.block_size
        placed = [(standing, num_placed(standing)) for standing in memory.running]
        members = sorted(member for standing, tokens in placed for member in _members(standing, tokens))
        self._left = [left for left, _ in members]
        self._held = [held for _, held in members]
        self._most = self._peak()
        self._num_held = sum(-(-tokens // size) for _, tokens in placed)

    def fits(self, candidate: Standing, num_new: int, memory: MemoryView) -> bool:
        size, tokens = memory.block_size, candidate.num_known
        num_own = -(-tokens // size)
        room = memory.num_free + self._num_held + num_own - num_new
        before = list(self._left), list(self._held)
        most = self._most
        for left, held in _members(candidate, tokens):
            place = bisect_right(self._left, left)
            self._left.insert(place, left)
            self._held.insert(place, held)
            most += held - left
        # Half a block of each table is empty on average.
        room = (room - len(self._left) // 2) * size if size > 1 else room
        if most > room:  # the peak itself takes a while to find
            most = self._peak()
        if most > room:
            self._left, self._held = before
            return False
        self._most = most
        self._num_held += num_own
        return True

    def _peak(self) -> int:
        peak: int = max(map(sub, accumulate(self._held), map(mul, self._left, count(1))))
        return peak


def _members(standing: Standing, num_placed: int) -> list[tuple[int, int]]:
    left = max(1, num_places(standing.request, standing.expected_output) - num_placed)
    return [(-left, num_placed)] + [(-left, 0)] * standing.num_unborn  # unborn samples share its prompt
