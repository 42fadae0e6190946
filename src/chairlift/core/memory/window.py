"""The pages of layers with windows: how requests take them ahead of a prompt and release them behind the window.

Always: a request that decodes has pages for all of its blocks from `num_behind` on; one in its prompt for those that
are computed at least, and for those of its next chunk if the pool has them.
"""

from chairlift.core.ids import BlockId
from chairlift.core.memory.held import Held, KindTables
from chairlift.core.memory.pages import Window
from chairlift.core.memory.pool import BlockPool, Prefix
from chairlift.core.plan import BlockCopy
from chairlift.core.request import Progress

_NOWHERE = BlockId(0)  # in the place of pages that are never read


class WindowTables(KindTables):
    def __init__(self, pool: BlockPool, place: int, window: Window) -> None:
        super().__init__(pool, place)
        self._window = window
        self._num = window.num_pages
        self._advanced: list[Progress] = []  # requests that the last plan brought forward by more than a token

    @property
    def is_settled(self) -> bool:
        return not self._advanced

    def settle(self) -> None:
        if self._advanced:
            for progress in self._advanced:
                if progress.held:
                    self.let_go(progress, progress.num_computed)
            self._advanced = []

    def sealed(self) -> None:
        """Nothing: windows are never copied from."""

    def let_go(self, progress: Progress, start: int) -> None:
        held, num_behind = self.of(progress), self._window.num_behind(start)
        if num_behind > held.num_behind:
            self.pool.release(held.pages[held.num_behind * self._num : num_behind * self._num])
            held.num_behind = num_behind

    def reach(self, progress: Progress, count: int) -> int:
        self._advanced.append(progress)
        held, size = self.of(progress), self._window.block_size
        start, num_known = progress.num_computed, progress.num_known
        num_lacking = self._end(held.num_behind, len(progress.blocks)) - len(held.pages) // self._num
        if num_lacking > 0:
            held.pages += self.pool.take(min(num_lacking, self.pool.num_free // self._num) * self._num)
        num_placed = len(held.pages) // self._num * size
        end = min(start + count, num_placed)
        # A request that is one token behind decodes, and then has pages for all that is known.
        return end - start - (end == num_known - 1 and num_placed < num_known)

    def num_unshared(self, progress: Progress, num_steps: int) -> int:
        held, counts, num_computed = self.of(progress), self.pool.counts, progress.num_computed
        num, size = self._num, self._window.block_size
        for block in range(held.num_behind, self._window.num_behind(num_computed + num_steps)):
            if any(counts[page] > 1 for page in held.pages[block * num : (block + 1) * num]):
                first = -(-((block + 1) * size + self._window.reach - 1) // size) * size  # it takes a block then
                return min(num_steps, max(0, first - num_computed))
        return num_steps

    def num_needed(self, progress: Progress, found: Prefix, num_all: int) -> int:
        low = len(found.blocks) - len(found.beside[self.place]) // self._num
        if progress.host_blocks:
            low = self._window.num_behind(progress.num_saved)
        return self._num * (self._end(low, num_all) - low)

    def _end(self, low: int, num_all: int) -> int:
        """The block before which a prompt takes pages, where those before `low` are released."""
        return min(num_all, low + self._window.num_ahead)

    def begin(self, progress: Progress, found: Prefix, num_all: int) -> tuple[Held, list[BlockCopy]]:
        shared, num_found = found.beside[self.place], len(found.blocks)
        low = num_found - len(shared) // self._num
        own = self.pool.take(self._num * (self._end(low, num_all) - num_found))
        return Held([*[_NOWHERE] * (low * self._num), *shared, *own], low), []

    def restore(self, progress: Progress, num_all: int) -> tuple[Held, list[BlockId]]:
        low, num_used = self._window.num_behind(progress.num_saved), -(-progress.num_saved // self._window.block_size)
        own = self.pool.take(self._num * (self._end(low, num_all) - low))
        return Held([_NOWHERE] * (low * self._num) + own, low), own[: self._num * (num_used - low)]

    def grow(self, progress: Progress, count: int) -> list[BlockCopy]:
        self.of(progress).pages.extend(self.pool.take(count * self._num))
        return []

    def copy_tail(self, progress: Progress) -> list[BlockCopy]:
        held = self.of(progress)
        rest, tail = held.pages[: -self._num], held.pages[-self._num :]
        own = self.pool.take(self._num)
        self.pool.release(tail)
        held.pages = rest + own
        return list(map(BlockCopy, tail, own))

    def trim(self, progress: Progress, num_used: int) -> None:
        self._advanced.append(progress)
        held = self.of(progress)
        if len(held.pages) > num_used * self._num:
            self.pool.release(held.pages[num_used * self._num :])
            held.pages = held.pages[: num_used * self._num]

    def fork(self, source: Progress, target: Progress, num_used: int) -> Held:
        self._advanced.append(target)
        held = self.of(source)
        own = Held(held.pages[: num_used * self._num], held.num_behind)
        self.pool.share(own.pages[own.num_behind * self._num :])
        return own

    def publish(self, progress: Progress, block: int) -> None:
        held = self.of(progress)
        if block >= held.num_behind:
            self.pool.keep(self.place, progress.content, held.pages[block * self._num : (block + 1) * self._num])

    def used(self, progress: Progress) -> list[BlockId]:
        self.let_go(progress, progress.num_computed)
        held, num_used = self.of(progress), -(-progress.num_computed // self._window.block_size)
        return held.pages[held.num_behind * self._num : num_used * self._num]

    def listed(self, progress: Progress) -> list[BlockId]:
        held = self.of(progress)
        return held.pages[held.num_behind * self._num :]

    def check(self, progress: Progress, name: str) -> None:
        held, window = self.of(progress), self._window
        num_listed, rest = divmod(len(held.pages), self._num)
        num_all, num_computed = len(progress.blocks), progress.num_computed
        assert rest == 0 and num_listed <= num_all, f"{name}: other pages in windows than blocks"
        assert held.num_behind <= window.num_behind(num_computed), f"{name}: released what its next token sees"
        assert num_computed <= num_listed * window.block_size, f"{name}: computed past the pages of windows"
        is_decoding = progress.num_known - num_computed <= 1
        assert not is_decoding or num_listed == num_all, f"{name}: decodes without pages of windows"
        # A prompt's pages go when the plan after its last is made; shared ones may come on top.
        most = window.num_ahead + window.num_seen + 1
        assert num_listed - held.num_behind <= most, f"{name}: holds pages behind its window"
