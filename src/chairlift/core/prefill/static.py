"""Refill only when the whole batch is done: the baseline.

Nothing decodes while the batch fills; it is full when a step admits no request.
"""

from chairlift.core.policy import Allowance, Prefill, StepView


class Static(Prefill):
    def __init__(self) -> None:
        self._is_open = True
        self._num_seen = 0  # admitted before the last step

    def allow(self, step: StepView) -> Allowance:
        has_grown = step.num_admitted > self._num_seen
        self._num_seen = step.num_admitted
        if step.num_decodes + step.num_prompts + step.num_preempted == 0:
            self._is_open = True
        elif self._is_open:
            has_room = step.num_admissible > 0 and step.num_waiting > 0
            self._is_open = has_room and (has_grown or step.num_prompts > 0)
        # Preempted requests belong to the batch.
        return Allowance(decodes=False) if self._is_open else Allowance(num_new=step.num_preempted)
