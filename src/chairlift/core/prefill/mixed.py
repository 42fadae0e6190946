"""Prompts and decodes share every step."""

from chairlift.core.policy import Allowance, StepView


class Mixed:
    def allow(self, view: StepView) -> Allowance:
        return Allowance()
