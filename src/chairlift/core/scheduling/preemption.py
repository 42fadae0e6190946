"""What happens to a victim: its keys and values are recomputed later or swapped to host memory, and it queues again."""

from dataclasses import dataclass

from chairlift.core.errors import InvalidConfig
from chairlift.core.scheduling.queue import Rank

MODES = ("recompute", "swap", "auto")
REQUEUES = ("arrival", "fifo", "lifo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    mode: str = "recompute"
    num_host_blocks: int = 0
    block_copy_s: float = 0.0  # moving one block one way
    token_s: float = 0.0  # computing one token of a prompt again
    requeue: str = "arrival"  # which is admitted again first

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidConfig(f"preemption {self.mode!r} is not known; there are: {', '.join(MODES)}")

        if self.requeue not in REQUEUES:
            raise InvalidConfig(f"requeue {self.requeue!r} is not known; there are: {', '.join(REQUEUES)}")

    def rank(self, arrival: float, num_requeued: int) -> Rank:
        """The place among preempted requests of one that arrived then, after so many others were queued again."""
        if self.requeue == "arrival":
            return (arrival,)
        return (num_requeued if self.requeue == "fifo" else -num_requeued,)

    def is_swap(self, num_blocks: int, num_tokens: int) -> bool:
        """Whether a victim with so many blocks and computed tokens is swapped out rather than recomputed."""
        if self.mode == "auto":
            return 2 * num_blocks * self.block_copy_s < num_tokens * self.token_s
        return self.mode == "swap"
