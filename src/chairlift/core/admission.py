"""The admission rules: whether memory allows the next request."""

from itertools import accumulate, count
from operator import mul, sub

from chairlift.core.memory.pages import Pages
from chairlift.core.policy import Admission, MemoryView, RequestView
from chairlift.core.request import Request


def num_placed(running: RequestView) -> int:
    """Known tokens with a place in the cache: a sampled token gets one when it is computed, a prompt at once."""
    num_known, num_computed = running.num_known, running.num_computed
    return num_computed if num_known - num_computed == 1 else num_known


def num_places(request: Request, num_output: int) -> int:
    """Places in the cache that a request takes with so much output; the last token needs none."""
    return len(request.prompt) + num_output - 1


class PromptFits(Admission):
    """Admit a request if its known tokens fit, with a spare block for each running request."""

    def fits(self, candidate: RequestView, num_new: int, memory: MemoryView) -> bool:
        # Without the spare blocks, a request is admitted now and preempted in a moment.
        return num_new + len(memory.running) * memory.pages.per_block <= memory.num_free


class Reserve(Admission):
    """Admit a request only if its prompt and whole output fit beside all that others may still need.

    So no request is preempted for lack of memory, unless the samples of one prompt are too many for the whole pool.
    """

    def __init__(self) -> None:
        self._growth = 0  # blocks that all running requests may still take

    def look(self, memory: MemoryView) -> None:
        pages = memory.pages
        self._growth = sum(_growth(view, num_placed(view), pages) for view in memory.running)

    def fits(self, candidate: RequestView, num_new: int, memory: MemoryView) -> bool:
        growth = _growth(candidate, candidate.num_known, memory.pages)
        is_fitting = num_new + growth + self._growth <= memory.num_free
        self._growth += growth * is_fitting
        return is_fitting


def _growth(view: RequestView, num_placed: int, pages: Pages) -> int:
    """Blocks that it and its pending forks may take beyond those of the tokens that have a place."""
    request, params = view.request, view.request.params
    size, num_forks = pages.block_size, view.num_pending_forks
    num_most = -(-num_places(request, request.max_output) // size)
    num_now = -(-num_placed // size)
    growth = num_most - num_now
    if num_forks:
        growth += num_forks * (num_most - len(request.prompt) // size)
    if pages.kinds:  # what the window of one sample has passed, that of another may not have
        growth += (1 + num_forks) * pages.beside(num_most) - pages.beside(num_now)
    # A sample or a member of a search may have to copy the block that its next token goes to.
    return growth + (params.n > 1 or params.best_of > 1 or params.beam_width > 1) * pages.per_block


Member = tuple[int, int]  # tokens left, negative so that the longest is first, and tokens held


class Peak(Admission):
    """Admit a request if the predicted peak of all running requests fits.

    Requests do not need their most at the same time: those that end sooner free their blocks. With the requests
    sorted by the tokens left, longest first, the need at the moment the i-th ends is what the first i hold by then;
    the largest of these is the peak. Preemption makes up for a prediction that was too low. Requests of like length
    that start together do need their most at the same time: under an order by length fewer run, and a batch of work
    takes longer.
    """

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
        if memory.pages.kinds:
            num_held += sum(_beside(num_placed(view), memory.pages) for view in memory.running)
        self._members, self._most, self._num_held = members, _sum(members), num_held

    def fits(self, candidate: RequestView, num_new: int, memory: MemoryView) -> bool:
        size, tokens = memory.block_size, candidate.num_known
        num_own, members = -(-tokens // size), _members(candidate, tokens)
        if memory.pages.kinds:
            num_own += _beside(tokens, memory.pages)
        num_blocks = memory.num_free + self._num_held + num_own - num_new
        if memory.pages.kinds:  # those of all count from the beginning: they grow to their most soon
            num_blocks -= sum(_beside(held - left, memory.pages) for left, held in (*self._members, *members))
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


def _beside(num_tokens: int, pages: Pages) -> int:
    """Pages of layers that do not keep all tokens."""
    return pages.beside(-(-num_tokens // pages.block_size))


def _sum(members: list[Member]) -> int:
    """The need if all ended at the same time: no less than the peak."""
    return sum([held - left for left, held in members])


def _peak(members: list[Member]) -> int:
    left, held = zip(*members, strict=True)
    peak: int = max(map(sub, accumulate(held), map(mul, left, count(1))))
    return peak
