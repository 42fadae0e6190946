"""Any prefill rule, but nobody steps on in a step that made somebody step off."""

from chairlift.core.policy import Allowance, Prefill, StepView


class WaitAfterPreempt:
    def __init__(self, rule: Prefill) -> None:
        self._rule = rule

    def allow(self, view: StepView) -> Allowance:
        allowance = self._rule.allow(view)
        return allowance._replace(num_new=0) if view.has_preempted else allowance
