"""What happens to a victim's keys and values: recomputed later, or swapped to host memory."""

from dataclasses import dataclass

from chairlift.core.errors import InvalidConfig

MODES = ("recompute", "swap", "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    mode: str = "recompute"
    num_host_blocks: int = 0
    block_copy_s: float = 0.0  # moving one block one way
    token_s: float = 0.0  # computing one token of a prompt again

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidConfig(f"preemption {self.mode!r} is not known; there are: {', '.join(MODES)}")

    def is_swap(self, num_blocks: int, num_tokens: int) -> bool:
        """Whether a victim with so many blocks and computed tokens is swapped out rather than recomputed."""
        if self.mode == "auto":
            return 2 * num_blocks * self.block_copy_s < num_tokens * self.token_s
        return self.mode == "swap"
