"""Whether a request that goes on in another engine should take its keys and values along, or be computed there again.

moving takes     2 x bytes / bytes_per_s    a copy at the source and one at the target, at the rate of the last ones
computing takes  tokens x token_s           what a prompt token lately took in a step
"""

from chairlift.core.windows import Windows

FIRST_BYTES_PER_S = 1e9  # until a piece was copied
_MEMORY = 4  # pieces that count


class MovePrice:
    def __init__(self, block_bytes: int, windows: Windows) -> None:
        self.bytes_per_s = FIRST_BYTES_PER_S
        self._num_learned = 0
        self._block_bytes = block_bytes
        self._windows = windows

    def learn(self, num_bytes: int, seconds: float) -> None:
        """A piece of so many bytes was copied and checked."""
        if seconds > 0.0:
            self._num_learned = min(self._num_learned + 1, _MEMORY)
            self.bytes_per_s += (num_bytes / seconds - self.bytes_per_s) / self._num_learned

    def is_cheaper(self, num_tokens: int, token_s: float) -> bool:
        """To move so many tokens; `token_s` 0: not known, and then it mostly is."""
        num_bytes = self._windows.num_saved_pages(num_tokens) * self._block_bytes
        return token_s == 0.0 or 2 * num_bytes / self.bytes_per_s < num_tokens * token_s
