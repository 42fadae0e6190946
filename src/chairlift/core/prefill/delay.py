"""Hold new prompts until the oldest has waited `factor` times as long as the last prompt step took.

`exclusive`: prompts have steps of their own, as in engines for which the delay was made. Each such step stops all
decoding, so prompts that gather stop it less often.
"""

from chairlift.core.policy import Allowance, Prefill, StepView
from chairlift.core.prefill.exclusive import exclusive


class Delay(Prefill):
    skips_steady = True

    def __init__(self, factor: float = 0.5, exclusive: bool = False) -> None:
        if factor < 0:
            raise ValueError("factor must not be negative")
        self._factor = factor
        self._is_exclusive = exclusive

    def allow(self, step: StepView) -> Allowance:
        has_waited = step.now - step.oldest_arrival >= self._factor * step.last_prompt_s
        allowance = Allowance() if has_waited else Allowance(num_new=step.num_preempted)  # which are not new
        return exclusive(allowance, step) if self._is_exclusive else allowance
