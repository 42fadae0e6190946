"""Compute prompts before any decode: first tokens come soon, streams stall."""

from chairlift.core.policy import Allowance, Prefill, StepView


class PrefillFirst(Prefill):
    def allow(self, step: StepView) -> Allowance:
        can_enter = step.num_admissible > 0 and step.num_waiting + step.num_preempted > 0
        return Allowance(decodes=not (step.num_prompts or can_enter))
