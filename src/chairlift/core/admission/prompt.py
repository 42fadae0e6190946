"""Admit a request if its known tokens fit, with a spare block for each running request."""

from chairlift.core.policy import Admission, MemoryView, RequestView


class PromptFits(Admission):
    def fits(self, candidate: RequestView, num_new: int, memory: MemoryView) -> bool:
        # Without the spare blocks, a request is admitted now and preempted in a moment.
        return num_new + len(memory.running) * memory.windows.pages_per_block <= memory.num_free
