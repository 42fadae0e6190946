"""Step on only when the prompt and the whole output fit beside everything the running requests may still need."""

from chairlift.core.policy import MemoryView, Standing


class Reserve:
    def fits(self, candidate: Standing, num_new: int, memory: MemoryView) -> bool:
        size = memory.block_size
        promised = sum(_growth(standing, size) for standing in memory.running)
        return num_new + _growth(candidate, size) + promised <= memory.num_free


def _growth(standing: Standing, size: int) -> int:
    """Blocks it may still take beyond those of its known tokens; the last token needs no place."""
    most = len(standing.request.prompt) + standing.request.max_output - 1
    return max(0, -(-most // size) - -(-standing.num_known // size))
