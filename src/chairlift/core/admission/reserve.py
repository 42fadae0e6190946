"""Step on only when prompt and whole output fit beside all that others may still need.

So nobody is made to step off for lack of memory, unless the samples of one prompt are too many for the whole pool.
"""

from chairlift.core.policy import MemoryView, Standing


class Reserve:
    def fits(self, candidate: Standing, num_new: int, memory: MemoryView) -> bool:
        size = memory.block_size
        # The candidate takes the blocks of its known tokens now; a running request may not have that of its last yet.
        need = num_new + _growth(candidate, candidate.num_known, size)
        need += sum(_growth(standing, standing.num_known - 1, size) for standing in memory.running)
        return need <= memory.num_free


def _growth(standing: Standing, num_held: int, size: int) -> int:
    """Blocks it and its unborn samples may take beyond those of its first `num_held` tokens."""
    request, params = standing.request, standing.request.params
    num_most = -(-(len(request.prompt) + request.max_output - 1) // size)  # the last token needs no place
    growth = max(0, num_most - -(-num_held // size))
    growth += standing.num_unborn * (num_most - len(request.prompt) // size)
    # A sample or a member of a search may have to copy the block that its next token goes to.
    return growth + (max(params.num_samples, params.beam_width) > 1)
