"""How many tokens a step may compute: all that the limits allow, fewer for a while after one did not fit.

A step that did not fit halves its own number of tokens; each committed step adds a 256th, so that a lasting lack of
memory is met seldom.
"""

_GROWTH = 256


class StepBudget:
    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self.num_tokens = max_tokens  # at least 1

    @property
    def is_whole(self) -> bool:
        return self.num_tokens == self._max_tokens

    def shrink(self, num_tokens: int) -> None:
        """A step of so many tokens, more than one, did not fit."""
        self.num_tokens = min(self.num_tokens, num_tokens // 2)

    def grow(self) -> None:
        """A step did."""
        if self.num_tokens < self._max_tokens:
            self.num_tokens = min(self._max_tokens, self.num_tokens + self.num_tokens // _GROWTH + 1)
