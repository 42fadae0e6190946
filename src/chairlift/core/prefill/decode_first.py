"""Admit nothing new while requests decode, until a share `free` of the running set is free: streams flow."""

from chairlift.core.policy import Allowance, Prefill, StepView


class DecodeFirst(Prefill):
    skips_steady = True

    def __init__(self, free: float = 0.25) -> None:
        if not 0 <= free <= 1:
            raise ValueError("free must be between 0 and 1")
        self._free = free

    def allow(self, step: StepView) -> Allowance:
        size = step.num_admissible + step.num_decodes + step.num_prompts
        is_open = step.num_decodes == 0 or step.num_admissible >= self._free * size
        return Allowance(num_new=step.num_admissible if is_open else step.num_preempted)  # preempted ones are not new
