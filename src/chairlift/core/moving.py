"""Whether a request that goes on in another engine should take its keys and values along, or be computed there again.

moving takes     bytes / copied.bytes_per_s + bytes / fetched.bytes_per_s    at the rates of the last ones here: the
                 target fetches as this engine did when it was one
computing takes  tokens x token_s                                            what a prompt token lately took in a step
"""

from chairlift.core.windows import Windows

FIRST_BYTES_PER_S = 1e9  # until a piece was copied
_MEMORY = 4  # pieces that count


class CopyRate:
    def __init__(self) -> None:
        self.bytes_per_s = FIRST_BYTES_PER_S
        self._num_learned = 0

    def learn(self, num_bytes: int, seconds: float) -> None:
        """A piece of so many bytes was copied and checked."""
        if seconds > 0.0:
            self._num_learned = min(self._num_learned + 1, _MEMORY)
            self.bytes_per_s += (num_bytes / seconds - self.bytes_per_s) / self._num_learned


class MovePrice:
    def __init__(self, block_bytes: int, windows: Windows) -> None:
        self.copied, self.fetched = CopyRate(), CopyRate()  # pieces of this engine, and of others
        self._block_bytes = block_bytes
        self._windows = windows

    def is_cheaper(self, num_tokens: int, token_s: float) -> bool:
        """To move so many tokens; `token_s` 0: not known, and then it mostly is."""
        num_bytes = self._windows.num_saved_pages(num_tokens) * self._block_bytes
        move_s = num_bytes / self.copied.bytes_per_s + num_bytes / self.fetched.bytes_per_s
        return token_s == 0.0 or move_s < num_tokens * token_s
