"""Admit a request only if its prompt and whole output fit beside all that others may still need.

So no request is preempted for lack of memory, unless the samples of one prompt are too many for the whole pool.
"""

from chairlift.core.admission.placed import num_placed, num_places
from chairlift.core.policy import Admission, MemoryView, RequestView
from chairlift.core.windows import Windows


class Reserve(Admission):
    def __init__(self) -> None:
        self._growth = 0  # blocks that all running requests may still take

    def look(self, memory: MemoryView) -> None:
        windows = memory.windows
        self._growth = sum(_growth(view, num_placed(view), windows) for view in memory.running)

    def fits(self, candidate: RequestView, num_new: int, memory: MemoryView) -> bool:
        growth = _growth(candidate, candidate.num_known, memory.windows)
        is_fitting = num_new + growth + self._growth <= memory.num_free
        self._growth += growth * is_fitting
        return is_fitting


def _growth(view: RequestView, num_placed: int, windows: Windows) -> int:
    """Blocks that it and its pending forks may take beyond those of the tokens that have a place."""
    request, params = view.request, view.request.params
    size, num_forks = windows.block_size, view.num_pending_forks
    num_most = -(-num_places(request, request.max_output) // size)
    num_now = -(-num_placed // size)
    growth = num_most - num_now
    if num_forks:
        growth += num_forks * (num_most - len(request.prompt) // size)
    if windows.num_groups:  # what the window of one sample has passed, that of another may not have
        growth += (1 + num_forks) * windows.num_window_pages(num_most) - windows.num_window_pages(num_now)
    # A sample or a member of a search may have to copy the block that its next token goes to.
    return growth + (params.n > 1 or params.best_of > 1 or params.beam_width > 1) * windows.pages_per_block
