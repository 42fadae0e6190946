"""Hold new prompts until the oldest has waited `factor` times as long as the last prompt step took."""

from chairlift.core.policy import Allowance, Prefill, StepView


class Delay(Prefill):
    def __init__(self, factor: float = 0.5) -> None:
        if factor < 0:
            raise ValueError("factor must not be negative")
        self._factor = factor

    def allow(self, step: StepView) -> Allowance:
        has_waited = step.now - step.oldest_arrival >= self._factor * step.last_prompt_s
        return Allowance() if has_waited else Allowance(num_new=step.num_preempted)  # preempted requests are not new
