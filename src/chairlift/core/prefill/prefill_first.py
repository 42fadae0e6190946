"""Nobody decodes while there are prompts to compute: first tokens come soon, streams stall."""

from chairlift.core.policy import Allowance, StepView


class PrefillFirst:
    def allow(self, view: StepView) -> Allowance:
        can_enter = view.num_seats > 0 and view.num_waiting + view.num_preempted > 0
        return Allowance(decodes=not (view.num_prompts or can_enter))
