"""Let prompts in `size` at a time, once so many are there and have seats.

They are computed together. Fewer than that wait until others join them or nobody runs any more.
"""

from chairlift.core.policy import Allowance, StepView


class BatchedPrefill:
    def __init__(self, size: int = 8) -> None:
        if size < 1:
            raise ValueError(f"size={size}: must be at least 1")
        self._size = size
        self._end = 0  # how many will have been admitted when the batch is complete

    def allow(self, view: StepView) -> Allowance:
        size = min(self._size, view.num_seats + view.num_decodes + view.num_prompts)
        if view.num_admitted >= self._end and min(view.num_waiting, view.num_seats) >= size:
            self._end = view.num_admitted + size
        # A batch may take several steps. Those that stepped off come back when they can.
        return Allowance(num_new=max(0, self._end - view.num_admitted) + view.num_preempted)
