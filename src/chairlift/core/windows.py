"""Layers with a sliding window: which blocks of a request they still read, and how many pages a request takes.

A block of tokens has a page for the layers that see all tokens, and a page for each group of layers with a window. The
pages of a group are released once no coming token sees them:

    block      0    1    2    3    4    5
    full       F    F    F    F    F    F
    windows    .    .    W    W    W    W      num_groups pages each
    behind     ------>|          | num_computed

Numbers alone; without such layers there are no groups, and a block is a page.
"""

from typing import NamedTuple


class Windows(NamedTuple):
    size: int  # positions that a token sees, its own included
    num_groups: int  # of layers with a window, each of as many layers as see all tokens; 0: none
    block_size: int
    max_step_tokens: int

    @property
    def pages_per_block(self) -> int:
        return 1 + self.num_groups

    def num_behind(self, start: int) -> int:
        """Leading blocks that no token from this position on sees."""
        return max(0, start - self.size + 1) // self.block_size

    @property
    def num_seen(self) -> int:
        """Blocks that the first token after a whole block sees, its own not included."""
        return -(-(self.size - 1) // self.block_size)

    @property
    def num_in_prompt(self) -> int:
        """Blocks that the tokens of the largest chunk see or are in, and the token after it."""
        return -(-(self.size + self.max_step_tokens - 1) // self.block_size) + 1

    def num_window_pages(self, num_blocks: int) -> int:
        """The most that a request of so many blocks takes for these layers while it decodes."""
        return self.num_groups * min(num_blocks, self.num_seen + 1)

    def num_pages(self, num_tokens: int) -> int:
        """The most pages that so many tokens of a request take while it decodes."""
        num_blocks = -(-num_tokens // self.block_size)
        return num_blocks + self.num_window_pages(num_blocks)

    def num_prompt_pages(self, num_tokens: int) -> int:
        """The most pages that they take while they are computed as a prompt."""
        num_blocks = -(-num_tokens // self.block_size)
        return num_blocks + self.num_groups * min(num_blocks, self.num_in_prompt)

    def num_saved_pages(self, num_tokens: int) -> int:
        """Pages that hold all that the token after these sees."""
        num_blocks = -(-num_tokens // self.block_size)
        return num_blocks + self.num_groups * (num_blocks - self.num_behind(num_tokens))

    def max_tokens(self, num_pages: int) -> int:
        """Tokens of the longest request that so many pages hold from its prompt to its end."""
        num_blocks = num_pages // self.pages_per_block
        if self.num_groups and num_blocks >= self.num_in_prompt:
            num_blocks = num_pages - self.num_groups * self.num_in_prompt
        return num_blocks * self.block_size


NO_WINDOWS = Windows(0, 0, 1, 1)
