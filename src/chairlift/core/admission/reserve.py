"""Step on only when prompt and whole output fit beside all that others may still need.

So nobody is made to step off for lack of memory, unless the samples of one prompt are too many for the whole pool.
"""

from chairlift.core.admission.placed import num_placed, num_places
from chairlift.core.policy import MemoryView, Standing


class Reserve:
    def fits(self, candidate: Standing, num_new: int, memory: MemoryView) -> bool:
        size = memory.block_size
        need = num_new + _growth(candidate, candidate.num_known, size)
        need += sum(_growth(standing, num_placed(standing), size) for standing in memory.running)
        return need <= memory.num_free


def _growth(standing: Standing, num_placed: int, size: int) -> int:
    """Blocks it and its unborn samples may take beyond those of the tokens that have a place."""
    request, params = standing.request, standing.request.params
    num_most = -(-num_places(standing, request.max_output) // size)
    growth = max(0, num_most - -(-num_placed // size))
    growth += standing.num_unborn * (num_most - len(request.prompt) // size)
    # A sample or a member of a search may have to copy the block that its next token goes to.
    return growth + (max(params.num_samples, params.beam_width) > 1)
