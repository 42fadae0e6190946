"""Let prompts in `size` at a time: wait until so many are there and have seats, then compute them together."""

from chairlift.core.policy import Allowance, StepView


class BatchedPrefill:
    def __init__(self, size: int = 8) -> None:
        if size < 1:
            raise ValueError(f"size={size}: must be at least 1")
        self._size = size

    def allow(self, view: StepView) -> Allowance:
        if view.num_preempted:
            return Allowance()
        num_ready = min(view.num_waiting, view.num_seats)
        return Allowance(num_new=self._size if num_ready >= self._size else 0)
