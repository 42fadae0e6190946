"""The pages of layers with windows: how requests take them ahead of a prompt and release them behind the window.

Always: a request that decodes has pages for all of its blocks from `num_behind` on; one in its prompt for those that
are computed at least, and for those of its next chunk if the pool has them. Runners work in order, so pages that no
coming chunk reads can be taken again at once. Without windows nothing is done.
"""

from collections.abc import Sequence

from chairlift.core.ids import BlockId
from chairlift.core.plan import BlockCopy
from chairlift.core.request import Progress
from chairlift.core.scheduling.pool import BlockPool, Prefix
from chairlift.core.windows import Windows

_NOWHERE = BlockId(0)  # in the place of pages that are never read


class WindowTables:
    def __init__(self, pool: BlockPool, windows: Windows) -> None:
        self._pool = pool
        self._windows = windows
        self._num = windows.num_groups
        self._advanced: list[Progress] = []  # requests that the last plan brought forward by more than a token

    @property
    def is_settled(self) -> bool:
        """Whether every request has released what lies behind its window, but for the last block."""
        return not self._advanced

    def settle(self) -> None:
        """Before a plan: what the last one read and no other will is released."""
        if self._advanced:
            for progress in self._advanced:
                self.let_go(progress, progress.num_computed)
            self._advanced = []

    def let_go(self, progress: Progress, start: int) -> None:
        """Release the pages that no token from `start` on sees."""
        num_behind = self._windows.num_behind(start)
        if num_behind > progress.num_behind and progress.window_blocks:
            self._pool.release(progress.window_blocks[progress.num_behind * self._num : num_behind * self._num])
            progress.num_behind = num_behind

    def reach(self, progress: Progress, count: int) -> int:
        """Take pages ahead of a prompt; how many of the next `count` known tokens have some then."""
        self._advanced.append(progress)
        start, num_known = progress.num_computed, progress.num_known
        num_lacking = self._end(progress.num_behind, len(progress.blocks)) - len(progress.window_blocks) // self._num
        if num_lacking > 0:
            progress.window_blocks += self._pool.take(min(num_lacking, self._pool.num_free // self._num) * self._num)
        num_placed = len(progress.window_blocks) // self._num * self._pool.block_size
        end = min(start + count, num_placed)
        # A request that is one token behind decodes, and then has pages for all that is known.
        return end - start - (end == num_known - 1 and num_placed < num_known)

    def num_needed(self, progress: Progress, found: Prefix, num_all: int) -> int:
        """Pages that a request lists after its admission, with `num_all` blocks of known tokens."""
        if not self._num:
            return 0
        low = self._low(progress, found)
        return self._num * (self._end(low, num_all) - low)

    def _low(self, progress: Progress, found: Prefix) -> int:
        if progress.host_blocks:
            return self._windows.num_behind(progress.num_saved)
        return len(found.blocks) - len(found.window_blocks) // self._num

    def _end(self, low: int, num_all: int) -> int:
        """The block before which a prompt takes pages, where those before `low` are released."""
        return min(num_all, low + self._windows.num_in_prompt)

    def begin(self, progress: Progress, num_found: int, num_all: int, shared: Sequence[BlockId]) -> None:
        """Start a table with `shared` pages of the last of `num_found` cached blocks."""
        if self._num:
            low = num_found - len(shared) // self._num
            own = self._pool.take(self._num * (self._end(low, num_all) - num_found))
            progress.window_blocks, progress.num_behind = [*[_NOWHERE] * (low * self._num), *shared, *own], low

    def restore(self, progress: Progress, num_all: int, num_used: int) -> list[BlockId]:
        """Start the table of a request that is swapped in; the pages to write to."""
        if not self._num:
            return []
        low = self._windows.num_behind(progress.num_saved)
        own = self._pool.take(self._num * (self._end(low, num_all) - low))
        progress.window_blocks, progress.num_behind = [_NOWHERE] * (low * self._num) + own, low
        return own[: self._num * (num_used - low)]

    def copy_tail(self, progress: Progress) -> list[BlockCopy]:
        """Replace the pages of the last block, which other tables list, by copies."""
        if not self._num:
            return []
        rest, tail = progress.window_blocks[: -self._num], progress.window_blocks[-self._num :]
        own = self._pool.take(self._num)
        self._pool.release(tail)
        progress.window_blocks = rest + own
        return list(map(BlockCopy, tail, own))

    def trim(self, progress: Progress, num_used: int) -> None:
        """Release the pages beyond so many blocks. Drafts may have brought it past several."""
        if self._num:
            self._advanced.append(progress)
        if len(progress.window_blocks) > num_used * self._num:
            self._pool.release(progress.window_blocks[num_used * self._num :])
            progress.window_blocks = progress.window_blocks[: num_used * self._num]

    def fork(self, source: Progress, target: Progress, num_used: int) -> None:
        if self._num:
            target.window_blocks = source.window_blocks[: num_used * self._num]
            target.num_behind = source.num_behind
            self._pool.share(self.held(target))
            self._advanced.append(target)

    def publish(self, progress: Progress, block: int) -> None:
        """Have the prefix index know the pages of a block, whose content it has just named, if they are held."""
        if block >= progress.num_behind:
            pages = progress.window_blocks[block * self._num : (block + 1) * self._num]
            self._pool.keep_window(progress.content, pages)

    def used(self, progress: Progress, num_used: int) -> list[BlockId]:
        """The pages that the next token sees, of so many computed blocks; others before them are released."""
        self.let_go(progress, progress.num_computed)
        return progress.window_blocks[progress.num_behind * self._num : num_used * self._num]

    def held(self, progress: Progress) -> list[BlockId]:
        return progress.window_blocks[progress.num_behind * self._num :]

    def release(self, progress: Progress) -> None:
        if progress.window_blocks:
            self._pool.release(self.held(progress))
            progress.window_blocks, progress.num_behind = [], 0
