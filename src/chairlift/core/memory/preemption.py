"""What happens to a victim: its keys and values are recomputed later or swapped to host memory, and it queues again."""

from dataclasses import dataclass

from chairlift.core.errors import InvalidConfig
from chairlift.core.step_forecast import StepTimes, seconds_at

MODES = ("recompute", "swap", "auto")
REQUEUES = ("arrival", "fifo", "lifo")
Rank = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    mode: str = "recompute"
    num_host_blocks: int = 0
    block_copy_s: float = 0.0  # moving one block one way
    step_times: StepTimes = ()  # of steps that compute a prompt of so many tokens
    requeue: str = "arrival"  # which is admitted again first

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidConfig(f"preemption {self.mode!r} is not known; there are: {', '.join(MODES)}")

        if self.requeue not in REQUEUES:
            raise InvalidConfig(f"requeue {self.requeue!r} is not known; there are: {', '.join(REQUEUES)}")

        if self.mode == "auto" and not self.step_times:
            raise InvalidConfig("preemption auto compares times and has none: step_times is empty")

    def rank(self, arrival: float, num_requeued: int) -> Rank:
        """The place among preempted requests of one that arrived then, after so many others were queued again."""
        if self.requeue == "arrival":
            return (arrival,)
        return (num_requeued if self.requeue == "fifo" else -num_requeued,)

    def is_swap(self, num_blocks: int, num_tokens: int, num_beside: int) -> bool:
        """Whether a victim is swapped out rather than recomputed: so many blocks to move out and in again, or so many
        tokens to compute in a step beside so many others."""
        if self.mode == "auto":
            return 2 * num_blocks * self.block_copy_s < self._recompute_s(num_tokens, num_beside)
        return self.mode == "swap"

    def _recompute_s(self, num_tokens: int, num_beside: int) -> float:
        """What the tokens add to a step that is computed anyway: the weights are read once for all."""
        both_s = seconds_at(self.step_times, num_tokens + num_beside)
        return both_s - seconds_at(self.step_times, num_beside)
