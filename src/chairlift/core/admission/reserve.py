"""Admit a request only if its prompt and whole output fit beside all that others may still need.

So no request is preempted for lack of memory, unless the samples of one prompt are too many for the whole pool.
"""

from chairlift.core.admission.placed import num_placed, num_places
from chairlift.core.policy import Admission, MemoryView, RequestView


class Reserve(Admission):
    def __init__(self) -> None:
        self._growth = 0  # blocks that all running requests may still take

    def look(self, memory: MemoryView) -> None:
        size = memory.block_size
        self._growth = sum(_growth(view, num_placed(view), size) for view in memory.running)

    def fits(self, candidate: RequestView, num_new: int, memory: MemoryView) -> bool:
        growth = _growth(candidate, candidate.num_known, memory.block_size)
        is_fitting = num_new + growth + self._growth <= memory.num_free
        self._growth += growth * is_fitting
        return is_fitting


def _growth(view: RequestView, num_placed: int, size: int) -> int:
    """Blocks that it and its pending forks may take beyond those of the tokens that have a place."""
    request, params = view.request, view.request.params
    num_most = -(-num_places(request, request.max_output) // size)
    growth = num_most - -(-num_placed // size)
    if view.num_pending_forks:
        growth += view.num_pending_forks * (num_most - len(request.prompt) // size)
    # A sample or a member of a search may have to copy the block that its next token goes to.
    return growth + (params.n > 1 or params.best_of > 1 or params.beam_width > 1)
