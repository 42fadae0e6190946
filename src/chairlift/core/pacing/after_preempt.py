"""Any pacing rule, but nobody steps on in a step that made somebody step off."""

from chairlift.core.policy import Allowance, Pacing, StepView


class WaitAfterPreempt:
    def __init__(self, rule: Pacing) -> None:
        self._rule = rule

    def allow(self, view: StepView) -> Allowance:
        allowance = self._rule.allow(view)
        return allowance._replace(num_new=0) if view.has_preempted else allowance
