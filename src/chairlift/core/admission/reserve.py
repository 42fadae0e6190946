"""Step on only when prompt and whole output fit beside all that others may still need.

So nobody is made to step off for lack of memory, unless the samples of one prompt are too many for the whole pool.
"""

from chairlift.core.admission.placed import num_placed, num_places
from chairlift.core.policy import MemoryView, Standing


class Reserve:
    def __init__(self) -> None:
        self._growth = 0  # blocks that all who run may still take

    def look(self, memory: MemoryView) -> None:
        size = memory.block_size
        self._growth = sum(_growth(standing, num_placed(standing), size) for standing in memory.running)

    def fits(self, candidate: Standing, num_new: int, memory: MemoryView) -> bool:
        growth = _growth(candidate, candidate.num_known, memory.block_size)
        is_fitting = num_new + growth + self._growth <= memory.num_free
        self._growth += growth * is_fitting
        return is_fitting


def _growth(standing: Standing, num_placed: int, size: int) -> int:
    """Blocks it and its unborn samples may take beyond those of the tokens that have a place."""
    request, params = standing.request, standing.request.params
    num_most = -(-num_places(request, request.max_output) // size)
    growth = num_most - -(-num_placed // size)
    if standing.num_unborn:
        growth += standing.num_unborn * (num_most - len(request.prompt) // size)
    # A sample or a member of a search may have to copy the block that its next token goes to.
    return growth + (params.n > 1 or params.best_of > 1 or params.beam_width > 1)
