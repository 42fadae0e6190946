"""Hold new prompts until the oldest has waited `factor` times as long as the last prompt step took."""

from chairlift.core.policy import Allowance, StepView


class Delay:
    def __init__(self, factor: float = 0.5) -> None:
        if factor < 0:
            raise ValueError(f"factor={factor}: must not be negative")
        self._factor = factor

    def allow(self, view: StepView) -> Allowance:
        has_waited = view.now - view.oldest_arrival >= self._factor * view.last_prompt_s
        return Allowance() if has_waited else Allowance(num_new=view.num_preempted)  # who stepped off is not new
