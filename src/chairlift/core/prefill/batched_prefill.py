"""Admit prompts `size` at a time, once so many wait and the running set has room for them.

Fewer than `size` wait until others join them or no request runs.
"""

from chairlift.core.policy import Allowance, Prefill, StepView


class BatchedPrefill(Prefill):
    skips_steady = True

    def __init__(self, size: int = 8) -> None:
        if size < 1:
            raise ValueError("size must be at least 1")
        self._size = size
        self._end = 0  # num_admitted when the batch is complete

    def allow(self, step: StepView) -> Allowance:
        size = min(self._size, step.num_admissible + step.num_decodes + step.num_prompts)
        if step.num_admitted >= self._end and min(step.num_waiting, step.num_admissible) >= size:
            self._end = step.num_admitted + size
        # A batch may take several steps. Preempted requests come back when they can.
        return Allowance(num_new=max(0, self._end - step.num_admitted) + step.num_preempted)
