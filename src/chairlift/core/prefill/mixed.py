"""Compute prompts and decodes in the same steps."""

from chairlift.core.policy import Allowance, Prefill, StepView


class Mixed(Prefill):
    skips_steady = True

    def allow(self, step: StepView) -> Allowance:
        return Allowance()
