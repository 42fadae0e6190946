"""Compute prompts before any decode: first tokens come soon, streams stall."""

from chairlift.core.policy import Allowance, Prefill, StepView
from chairlift.core.prefill.exclusive import exclusive


class PrefillFirst(Prefill):
    def allow(self, step: StepView) -> Allowance:
        return exclusive(Allowance(), step)
