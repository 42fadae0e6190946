"""Any prefill rule, but no admission in a step that preempts: decodes then wait for prompts in progress alone."""

from chairlift.core.policy import Allowance, Prefill, StepView


class WaitAfterPreempt(Prefill):
    def __init__(self, rule: Prefill) -> None:
        self._rule = rule

    def allow(self, step: StepView) -> Allowance:
        allowance = self._rule.allow(step)
        if not step.has_preempted:
            return allowance
        return allowance._replace(num_new=0, decodes=allowance.decodes or not step.num_prompts)
