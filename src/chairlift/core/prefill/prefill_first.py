"""Compute prompts before any decode: first tokens come soon, streams stall."""

from chairlift.core.policy import Allowance, Prefill, StepView
from chairlift.core.prefill.exclusive import exclusive


class PrefillFirst(Prefill):
    skips_steady = True

    def allow(self, step: StepView) -> Allowance:
        return exclusive(Allowance(), step)
