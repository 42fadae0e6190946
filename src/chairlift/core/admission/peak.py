"""Admit a request if the predicted peak of all running requests fits.

Requests do not need their most at the same time: those that end sooner free their blocks. With the requests sorted by
the tokens left, longest first, the need at the moment the i-th ends is what the first i hold by then; the largest of
these is the peak. Preemption makes up for a prediction that was too low. Requests of like length that start together do
need their most at the same time: under an order by length fewer run, and a batch of work takes longer.
"""

from itertools import accumulate, count
from operator import mul, sub

from chairlift.core.admission.placed import num_placed, num_places
from chairlift.core.policy import Admission, MemoryView, RequestView
from chairlift.core.windows import Windows

Member = tuple[int, int]  # tokens left, negative so that the longest is first, and tokens held


class Peak(Admission):
    def __init__(self) -> None:
        self._members: list[Member] = []  # all running requests and their pending forks
        self._most = 0  # the peak, or more
        self._num_held = 0  # blocks; a shared block counts once for each table, here as below

    def look(self, memory: MemoryView) -> None:
        size, members, num_held = memory.block_size, [], 0
        for view in memory.running:
            tokens = num_placed(view)
            members += _members(view, tokens)
            num_held += -(-tokens // size)
        if memory.windows.num_groups:
            num_held += sum(_in_windows(num_placed(view), memory.windows) for view in memory.running)
        self._members, self._most, self._num_held = members, _sum(members), num_held

    def fits(self, candidate: RequestView, num_new: int, memory: MemoryView) -> bool:
        size, tokens = memory.block_size, candidate.num_known
        num_own, members = -(-tokens // size), _members(candidate, tokens)
        if memory.windows.num_groups:
            num_own += _in_windows(tokens, memory.windows)
        num_blocks = memory.num_free + self._num_held + num_own - num_new
        if memory.windows.num_groups:  # windows of all count from the beginning: they grow to their most soon
            num_blocks -= sum(_in_windows(held - left, memory.windows) for left, held in (*self._members, *members))
        if size > 1:  # half a block of each table is empty on average
            num_blocks -= (len(self._members) + len(members)) // 2
        most = self._most + _sum(members)
        members = [*self._members, *members]
        if most > num_blocks * size:  # the peak itself takes a while to find
            members.sort()
            most = _peak(members)
        if most > num_blocks * size:
            return False
        self._members, self._most, self._num_held = members, most, self._num_held + num_own
        return True


def _members(view: RequestView, num_placed: int) -> list[Member]:
    left = max(1, num_places(view.request, view.expected_output) - num_placed)
    return [(-left, num_placed), *[(-left, 0)] * view.num_pending_forks]  # pending forks share its prompt


def _in_windows(num_tokens: int, windows: Windows) -> int:
    """Pages of layers with windows."""
    return windows.num_window_pages(-(-num_tokens // windows.block_size))


def _sum(members: list[Member]) -> int:
    """The need if all ended at the same time: no less than the peak."""
    return sum([held - left for left, held in members])


def _peak(members: list[Member]) -> int:
    left, held = zip(*members, strict=True)
    peak: int = max(map(sub, accumulate(held), map(mul, left, count(1))))
    return peak
