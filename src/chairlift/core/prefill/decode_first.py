"""While some decode, nobody new steps on until a share `free` of the seats is free: streams flow."""

from chairlift.core.policy import Allowance, StepView


class DecodeFirst:
    def __init__(self, free: float = 0.25) -> None:
        if not 0 <= free <= 1:
            raise ValueError(f"free={free}: must be between 0 and 1")
        self._free = free

    def allow(self, view: StepView) -> Allowance:
        seats = view.num_seats + view.num_decodes + view.num_prompts
        is_open = view.num_decodes == 0 or view.num_seats >= self._free * seats
        return Allowance(num_new=view.num_seats if is_open else view.num_preempted)  # who stepped off is not new
