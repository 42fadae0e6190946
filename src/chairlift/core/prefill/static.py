"""Refill only when the whole batch is done: the baseline.

While the batch fills, nobody decodes; it is complete when a step could let nobody on.
"""

from chairlift.core.policy import Allowance, StepView


class Static:
    def __init__(self) -> None:
        self._is_open = True
        self._num_seen = 0  # admitted before the last step

    def allow(self, view: StepView) -> Allowance:
        has_grown = view.num_admitted > self._num_seen
        self._num_seen = view.num_admitted
        if view.num_decodes + view.num_prompts + view.num_preempted == 0:
            self._is_open = True
        elif self._is_open:
            has_room = view.num_seats > 0 and view.num_waiting > 0
            self._is_open = has_room and (has_grown or view.num_prompts > 0)
        # Those that stepped off belong to the batch.
        return Allowance(decodes=False) if self._is_open else Allowance(num_new=view.num_preempted)
