"""Steps of prompts alone: decodes wait while a prompt is computed or may enter."""

from chairlift.core.policy import Allowance, StepView


def exclusive(allowance: Allowance, step: StepView) -> Allowance:
    num_entering = min(allowance.num_new, step.num_admissible, step.num_waiting + step.num_preempted)
    return allowance._replace(decodes=not (step.num_prompts or num_entering))
