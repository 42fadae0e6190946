"""Any prefill rule, but no admission in a step that preempts."""

from chairlift.core.policy import Allowance, Prefill, StepView


class WaitAfterPreempt(Prefill):
    def __init__(self, rule: Prefill) -> None:
        self._rule = rule

    def allow(self, step: StepView) -> Allowance:
        allowance = self._rule.allow(step)
        return allowance._replace(num_new=0) if step.has_preempted else allowance
