"""Size steps by how long they take: prompts end one by one while few wait, and fill large steps while many do.

The fixed time of a step is what it takes without prompts. The first prompt of a step has `share` times as long, and at
least `least` tokens, so that decodes do not wait much longer than the work is worth. A further prompt delays the first
by its own time; in a step of its own it would come later by the fixed time, and so would all behind it and those that
come meanwhile. So further prompts enter, whole, while they take less than twice the fixed time for each that waits.
"""

from chairlift.core.policy import Allowance, Prefill, StepView

_NUM_DELAYED = 2  # for each request that waits: itself, and one that comes meanwhile


class Timed(Prefill):
    skips_steady = True

    def __init__(self, share: float = 12.0, least: int = 512) -> None:
        if share < 0:
            raise ValueError("share must not be negative")
        if least < 1:
            raise ValueError("least must be at least 1")
        self._share = share
        self._least = least

    def allow(self, step: StepView) -> Allowance:
        if step.token_s == 0.0:  # nothing is known yet
            return Allowance()
        fixed = step.fixed_s / step.token_s  # prompt tokens that take as long
        num_behind = step.num_waiting + step.num_preempted + max(0, step.num_prompts - 1)
        num_more = int(_NUM_DELAYED * num_behind * fixed)
        if not step.num_decodes:
            return Allowance(num_more=num_more)
        return Allowance(num_tokens=max(self._least, int(self._share * fixed)) + num_more, num_more=num_more)
