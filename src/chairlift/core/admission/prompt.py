"""Step on when the known tokens fit, with a spare block for each running request."""

from chairlift.core.policy import MemoryView, Standing


class PromptFits:
    def fits(self, candidate: Standing, num_new: int, memory: MemoryView) -> bool:
        # Without the spare blocks, what is admitted now is preempted in a moment.
        return num_new + len(memory.running) <= memory.num_free
