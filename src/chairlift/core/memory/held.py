"""What requests hold of layers of a kind, beside the blocks that hold all tokens: the contract of each kind's tables.

Always: `Held.pages` is only appended to, or replaced, as block tables are. Runners work in order, so pages that no
coming chunk reads can be taken again at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from chairlift.core.ids import BlockId
from chairlift.core.memory.pool import BlockPool, Prefix
from chairlift.core.plan import BlockCopy, Checkpoint, Chunk
from chairlift.core.request import Progress


@dataclass(slots=True)
class Held:
    pages: list[BlockId] = field(default_factory=list)
    num_behind: int = 0  # leading blocks whose pages were released, or never taken: they are not read


class KindTables(ABC):
    def __init__(self, pool: BlockPool, place: int) -> None:
        """place: of the kind among all of the model's."""
        self.pool = pool
        self.place = place
        self.reserve = 0  # free pages that are not for what it could do without

    def of(self, progress: Progress) -> Held:
        held: Held = progress.held[self.place]
        return held

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether `settle` has nothing to do."""

    @abstractmethod
    def settle(self) -> None:
        """Before a plan: what no coming one reads is released."""

    @abstractmethod
    def sealed(self) -> None:
        """The plan under construction is complete: what it alone reads is released."""

    @abstractmethod
    def num_needed(self, progress: Progress, found: Prefix, num_all: int) -> int:
        """Pages that the admission of a request takes, with `num_all` blocks of known tokens; cached ones included."""

    @abstractmethod
    def begin(self, progress: Progress, found: Prefix, num_all: int) -> tuple[Held, list[BlockCopy]]:
        """What it holds then, and what is copied for it; found pages are shared already."""

    @abstractmethod
    def restore(self, progress: Progress, num_all: int) -> tuple[Held, list[BlockId]]:
        """What a request holds that is swapped in, and the pages to write to."""

    def num_growing(self, progress: Progress) -> int:
        """Pages that `grow` or `copy_tail` take beyond those of a block."""
        return 0

    @abstractmethod
    def grow(self, progress: Progress, count: int) -> list[BlockCopy]:
        """Take pages of so many blocks, which it has just got; copies if others were given in their place."""

    def checkpoints(self, chunks: Sequence[Chunk]) -> list[Checkpoint]:
        """That the chunks of a plan are to write."""
        return []

    @abstractmethod
    def reach(self, progress: Progress, count: int) -> int:
        """Take pages ahead of a prompt; how many of the next `count` known tokens have some then."""

    @abstractmethod
    def let_go(self, progress: Progress, start: int) -> None:
        """Release the pages that no token from `start` on sees."""

    @abstractmethod
    def num_unshared(self, progress: Progress, num_steps: int) -> int:
        """Of so many steps of decodes, those before the first that does more than take and let go of its own pages."""

    @abstractmethod
    def copy_tail(self, progress: Progress) -> list[BlockCopy]:
        """Replace the pages of the last block, which other tables list, by copies."""

    @abstractmethod
    def trim(self, progress: Progress, num_used: int) -> None:
        """Release the pages beyond so many blocks. Drafts may have brought it past several."""

    @abstractmethod
    def fork(self, source: Progress, target: Progress, num_used: int) -> Held:
        """What `target` holds that starts after so many blocks of `source`."""

    @abstractmethod
    def publish(self, progress: Progress, block: int) -> None:
        """Have the prefix index know the pages of a block, whose content it has just named, if they are held."""

    @abstractmethod
    def used(self, progress: Progress) -> list[BlockId]:
        """The pages that the next token sees; others before them are released."""

    @abstractmethod
    def listed(self, progress: Progress) -> list[BlockId]:
        """All pages that it holds."""

    def release(self, progress: Progress) -> None:
        self.pool.release(self.listed(progress))

    def is_spoilt(self, chunk: Chunk) -> bool:
        """Whether a chunk that was broken off may have overwritten what it started from."""
        return False

    @property
    def passing(self) -> list[BlockId]:
        """Pages that are held for the plan under construction."""
        return []

    @abstractmethod
    def check(self, progress: Progress, name: str) -> None:
        """Raise AssertionError unless a running request holds what it should."""
