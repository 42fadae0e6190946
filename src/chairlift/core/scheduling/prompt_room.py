"""Prompt tokens that a step has room for.

After the first prompt there may be less room, and then for whole prompts only; a step that is smaller by itself is
filled, with a part of the last prompt if need be.
"""


class PromptRoom:
    def __init__(self, num_tokens: int, num_more: int) -> None:
        self.left = num_tokens
        self.num_taken = 0
        self.is_whole = False
        self._num_more = num_more

    def takes(self, num_tokens: int) -> bool:
        """Whether a prompt of so many tokens may enter, or a part of it."""
        return num_tokens <= self.left or (self.left > 0 and not self.is_whole)

    def take(self, num_tokens: int) -> None:
        is_first = self.num_taken == 0
        self.left -= num_tokens
        self.num_taken += num_tokens
        if is_first and self._num_more < self.left:
            self.left, self.is_whole = self._num_more, True
