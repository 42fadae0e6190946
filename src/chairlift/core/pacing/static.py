"""Refill only when the whole batch is done: the baseline that everything else is measured against."""

from chairlift.core.policy import Allowance, StepView


class Static:
    def __init__(self) -> None:
        self._is_open = True
        self._num_seen = 0

    def allow(self, view: StepView) -> Allowance:
        num_running = view.num_decodes + view.num_prompts
        if num_running + view.num_preempted == 0:
            self._is_open = True
        elif self._is_open:
            # The batch is complete once nobody else could step on in the last step.
            has_room = view.num_seats > 0 and view.num_waiting > 0
            self._is_open = has_room and (num_running > self._num_seen or view.num_prompts > 0)
        self._num_seen = num_running
        # Nobody decodes before the batch is complete; those that stepped off belong to it.
        return Allowance(decodes=False) if self._is_open else Allowance(num_new=view.num_preempted)
