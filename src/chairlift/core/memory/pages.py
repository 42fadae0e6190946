"""How many pages of the pool a request takes.

A page is `block_size` tokens of one group of layers. Every model has layers that see all tokens: they take a page for
each block. What other layers keep is declared as groups, each of a kind:

    block      0    1    2    3    4    5
    tokens     F    F    F    F    F    F
    window     .    .    W    W    W    W      `num_pages` each, released once no coming token sees them
    fixed      two halves: a state of `num_pages`, and the rows of the block after it

Numbers alone; tables are made of them in `tables.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import BlockId, Content

CHECKPOINT_TOKENS = 16_384  # between two checkpoints of a text; docs/design/0030 has the reason


class Group(NamedTuple):
    """Layers whose memory lives and dies alike."""

    kind: str  # a name in `KINDS`
    num_pages: int
    reach: int  # window: positions that a token sees, its own included; fixed: tokens between two checkpoints
    num_tile_pages: int = 0  # fixed: of the rows of a block


class Kind(ABC):
    """What layers of a kind take."""

    def __init__(self, group: Group, block_size: int, max_step_tokens: int) -> None:
        if group.num_pages < 1 or group.reach < 1:
            raise InvalidConfig(f"layers of kind {group.kind}: num_pages and reach must be at least 1")
        self.num_pages, self.reach, self.num_tile_pages = group.num_pages, group.reach, group.num_tile_pages
        self.block_size = block_size
        self.max_step_tokens = max_step_tokens

    @property
    @abstractmethod
    def per_block(self) -> int:
        """Pages for each further block of a request that decodes."""

    @abstractmethod
    def num_behind(self, start: int) -> int:
        """Leading blocks whose pages no token from this position on sees."""

    @abstractmethod
    def num_decoding(self, num_blocks: int) -> int:
        """The most that a request of so many blocks takes while it decodes."""

    @abstractmethod
    def num_in_prompt(self, num_blocks: int) -> int:
        """The most that it takes while they are computed as a prompt."""

    @abstractmethod
    def num_saved(self, num_tokens: int) -> int:
        """Pages that hold all that the token after these sees."""

    @property
    def max_drafts(self) -> int:
        """Tokens that may be drafted for a request in a step."""
        return 1 << 30

    @abstractmethod
    def num_usable(self, contents: Sequence[Content], has: Callable[[Content], bool]) -> int:
        """Of the prefixes that end with these contents, one after the other: blocks of the longest after which a token
        finds all it sees. `has`: whether there are pages of a content."""

    @abstractmethod
    def needed(self, contents: Sequence[Content]) -> Sequence[Content]:
        """Those whose pages the token after all of these sees."""


class Window(Kind):
    @property
    def per_block(self) -> int:
        return self.num_pages

    def num_behind(self, start: int) -> int:
        return max(0, start - self.reach + 1) // self.block_size

    @property
    def num_seen(self) -> int:
        """Blocks that the first token after a whole block sees, its own not included."""
        return -(-(self.reach - 1) // self.block_size)

    @property
    def num_ahead(self) -> int:
        """Blocks that the tokens of the largest chunk see or are in, and the token after it."""
        return -(-(self.reach + self.max_step_tokens - 1) // self.block_size) + 1

    def num_decoding(self, num_blocks: int) -> int:
        return self.num_pages * min(num_blocks, self.num_seen + 1)

    def num_in_prompt(self, num_blocks: int) -> int:
        return self.num_pages * min(num_blocks, self.num_ahead)

    def num_saved(self, num_tokens: int) -> int:
        return self.num_pages * (-(-num_tokens // self.block_size) - self.num_behind(num_tokens))

    def num_usable(self, contents: Sequence[Content], has: Callable[[Content], bool]) -> int:
        num_seen = self.num_seen
        num_usable = num_before = 0  # blocks; of those before the next: the last ones without a gap
        for count, content in enumerate(contents, 1):
            num_before = num_before + 1 if has(content) else 0
            if num_before >= min(count, num_seen):
                num_usable = count
        return num_usable

    def needed(self, contents: Sequence[Content]) -> Sequence[Content]:
        return contents[max(0, len(contents) - self.num_seen) :]


class Fixed(Kind):
    def __init__(self, group: Group, block_size: int, max_step_tokens: int) -> None:
        if group.reach < 1 or group.reach % block_size:
            raise InvalidConfig(
                f"checkpoints every {group.reach} tokens: must be a multiple of the block size of {block_size} tokens"
            )
        super().__init__(group, block_size, max_step_tokens)

    @property
    def max_drafts(self) -> int:
        return self.block_size - 1  # so that a step passes the end of one tile at most

    @property
    def num_own(self) -> int:
        """Pages of a request."""
        return 2 * (self.num_pages + self.num_tile_pages)

    def half(self, pages: Sequence[BlockId], tile: int) -> tuple[Sequence[BlockId], Sequence[BlockId]]:
        """Of a request's pages those of the rows of a tile, and of the state before it."""
        size = self.num_tile_pages + self.num_pages
        half = pages[tile % 2 * size : (tile % 2 + 1) * size]
        return half[: self.num_tile_pages], half[self.num_tile_pages :]

    @property
    def per_block(self) -> int:
        return 0

    def num_behind(self, start: int) -> int:
        return 0

    def num_decoding(self, num_blocks: int) -> int:
        return self.num_own if num_blocks else 0

    def num_in_prompt(self, num_blocks: int) -> int:
        return self.num_own + self.num_pages if num_blocks else 0  # and what it starts from

    def num_saved(self, num_tokens: int) -> int:
        num_tiles, rest = divmod(num_tokens, self.block_size)
        return self.num_pages * (num_tiles > 0) + self.num_tile_pages * (rest > 0)

    def num_usable(self, contents: Sequence[Content], has: Callable[[Content], bool]) -> int:
        return next((count for count in range(len(contents), 0, -1) if has(contents[count - 1])), 0)

    def needed(self, contents: Sequence[Content]) -> Sequence[Content]:
        return contents[-1:]


KINDS: dict[str, type[Kind]] = {"window": Window, "fixed": Fixed}


class Pages:
    def __init__(self, block_size: int, kinds: Sequence[Kind] = ()) -> None:
        self.block_size = block_size
        self.kinds = kinds

    @property
    def per_block(self) -> int:
        """For each further block of a request that decodes."""
        return 1 + sum(kind.per_block for kind in self.kinds)

    @property
    def has_checkpoints(self) -> bool:
        """Whether cached tokens are gone on from at checkpoints of states alone."""
        return any(isinstance(kind, Fixed) for kind in self.kinds)

    def beside(self, num_blocks: int) -> int:
        """The most that a request of so many blocks takes beside these while it decodes."""
        return sum(kind.num_decoding(num_blocks) for kind in self.kinds)

    def num_decoding(self, num_tokens: int) -> int:
        """The most that so many tokens of a request take while it decodes."""
        num_blocks = -(-num_tokens // self.block_size)
        return num_blocks + self.beside(num_blocks)

    def num_in_prompt(self, num_tokens: int) -> int:
        """The most that they take while they are computed as a prompt."""
        return self._num_in_prompt(-(-num_tokens // self.block_size))

    def _num_in_prompt(self, num_blocks: int) -> int:
        return num_blocks + sum(kind.num_in_prompt(num_blocks) for kind in self.kinds)

    def num_saved(self, num_tokens: int) -> int:
        """Pages that hold all that the token after these sees."""
        return -(-num_tokens // self.block_size) + sum(kind.num_saved(num_tokens) for kind in self.kinds)

    def max_tokens(self, num_pages: int) -> int:
        """Tokens of the longest request that so many pages hold from its prompt to its end."""
        least, most = 0, num_pages  # blocks
        while least < most:
            middle = (least + most + 1) // 2
            if self._num_in_prompt(middle) <= num_pages:
                least = middle
            else:
                most = middle - 1
        return least * self.block_size


@lru_cache(maxsize=64)
def pages_of(block_size: int, max_step_tokens: int, groups: tuple[Group, ...]) -> Pages:
    unknown = [group.kind for group in groups if group.kind not in KINDS]
    if unknown:
        raise InvalidConfig(f"layers of kind {unknown[0]!r} are not known; there are: {', '.join(KINDS)}")
    return Pages(block_size, [KINDS[group.kind](group, block_size, max_step_tokens) for group in groups])
