"""The states of layers whose memory does not grow: where a request's are, and at which tokens they can be continued.

A text is divided into tiles of `block_size` tokens from its start. A request owns two halves: half c mod 2 has the
state after c tiles and the rows of the tile that follows. So the place follows from the position alone, and what was
drafted beyond the end of a tile spoils nothing that is needed if it was wrong.

    tokens         0..15     16..31    32..47    48..
    state after    -         16        32        48
    half           0         1         0         1        [rows | state]

A checkpoint is a further copy of a state, written by the step that reaches it and then known to the prefix index under
the content that it follows: every `reach` tokens, a tile before the end of a prompt, and where blocks of another text
go on and its states do not. It is taken only of pages that are free, and then waits as long as the blocks of the last
request that used it. What starts from one copies it.

A chunk writes the state after its last whole tile, and the rows of the tile after that.

Always: halves are one request's alone, but for samples that fork: the first to go on copies them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from chairlift.core.ids import BlockId, Content, RequestId
from chairlift.core.memory.held import Held, KindTables
from chairlift.core.memory.pages import Fixed
from chairlift.core.memory.pool import BlockPool, Prefix
from chairlift.core.plan import BlockCopy, Checkpoint, Chunk
from chairlift.core.request import Progress


@dataclass(slots=True)
class _Held(Held):
    junction: int = 0  # tokens after which blocks of another text were found, and no state
    written: dict[int, list[BlockId]] = field(default_factory=dict)  # checkpoints to come, by the tokens before them
    kept: list[Content] = field(default_factory=list)  # that it began after, or had checkpoints written after


class FixedTables(KindTables):
    def __init__(self, pool: BlockPool, place: int, fixed: Fixed) -> None:
        super().__init__(pool, place)
        self._fixed = fixed
        self._size = fixed.block_size
        self._sources: list[BlockId] = []  # checkpoints that the plan under construction copies
        self._open: dict[RequestId, Progress] = {}  # with checkpoints to come

    def of(self, progress: Progress) -> _Held:
        held: _Held = progress.held[self.place]
        return held

    @property
    def is_settled(self) -> bool:
        return True

    def settle(self) -> None:
        """Nothing: what was copied is released with the plan that copies it."""

    def sealed(self) -> None:
        self.pool.release(self._sources)
        self._sources = []

    def _live(self, pages: list[BlockId], num_tokens: int) -> list[BlockId]:
        """The pages that the token after these sees."""
        rows, state = self._fixed.half(pages, num_tokens // self._size)
        return [*(rows if num_tokens % self._size else ()), *(state if num_tokens >= self._size else ())]

    def num_needed(self, progress: Progress, found: Prefix, num_all: int) -> int:
        return self._fixed.num_own + (0 if progress.host_blocks else len(found.beside[self.place]))

    def begin(self, progress: Progress, found: Prefix, num_all: int) -> tuple[Held, list[BlockCopy]]:
        shared, num_found = found.beside[self.place], len(found.blocks)
        held = _Held(self.pool.take(self._fixed.num_own))
        if len(found.beyond) > 1:  # a prompt's checkpoint is a tile before where the next turn leaves it
            held.junction = (num_found + len(found.beyond)) * self._size
        self._sources += shared
        if shared:
            held.kept.append(found.content)
        return held, list(map(BlockCopy, shared, self._fixed.half(held.pages, num_found)[1]))

    def restore(self, progress: Progress, num_all: int) -> tuple[Held, list[BlockId]]:
        held = _Held(self.pool.take(self._fixed.num_own))
        return held, self._live(held.pages, progress.num_saved)

    def grow(self, progress: Progress, count: int) -> list[BlockCopy]:
        num_blocks = len(progress.blocks)
        for block in range(num_blocks - count, num_blocks):
            self._mark(progress, (block + 1) * self._size)
        return self.copy_tail(progress)

    def reach(self, progress: Progress, count: int) -> int:
        start = progress.num_computed
        first = (start // self._size + 1) * self._size
        for position in range(first, start + count + self._size, self._size):  # that of the tile it ends in, too
            self._mark(progress, position)
        return count

    def _mark(self, progress: Progress, position: int) -> None:
        """Set pages aside for a checkpoint after so many tokens, if one belongs there and there is room."""
        held = self.of(progress)
        if not self._is_chosen(progress, held, position) or position in held.written:
            return
        if self.pool.num_free >= self._fixed.num_pages + self.reserve:
            held.written[position] = self.pool.take(self._fixed.num_pages)
            self._open[progress.id] = progress

    def _is_chosen(self, progress: Progress, held: _Held, position: int) -> bool:
        if not self.pool.has_prefix_index:
            return False
        # A whole tile stays behind it: chats end a prompt with a few tokens that the next turn lacks.
        last = (len(progress.request.prompt) - self._size) // self._size * self._size
        return position % self._fixed.reach == 0 or position in (last, held.junction)

    def checkpoints(self, chunks: Sequence[Chunk]) -> list[Checkpoint]:
        """That the chunks of a plan reach."""
        found: list[Checkpoint] = []
        for chunk in chunks if self._open else ():
            progress = self._open.get(chunk.request.id)
            for position, pages in self.of(progress).written.items() if progress is not None else ():
                if chunk.start < position <= chunk.start + chunk.count:
                    found.append(Checkpoint(chunk.request.id, self.place, position, tuple(pages)))
        return found

    def publish(self, progress: Progress, block: int) -> None:
        held = self.of(progress)
        pages = held.written.pop((block + 1) * self._size, None)
        if pages is not None:
            self.pool.keep(self.place, progress.content, pages)
            self.pool.release(pages)
            held.kept.append(progress.content)
            if not held.written:
                del self._open[progress.id]

    def num_growing(self, progress: Progress) -> int:
        return self._fixed.num_own if self._is_shared(progress) else 0

    def _is_shared(self, progress: Progress) -> bool:
        return self.pool.counts[self.of(progress).pages[0]] > 1

    def copy_tail(self, progress: Progress) -> list[BlockCopy]:
        if not self._is_shared(progress):
            return []
        held = self.of(progress)
        before, held.pages = held.pages, self.pool.take(self._fixed.num_own)
        self.pool.release(before)
        num_tokens = progress.num_computed
        return list(map(BlockCopy, self._live(before, num_tokens), self._live(held.pages, num_tokens)))

    def num_unshared(self, progress: Progress, num_steps: int) -> int:
        """Checkpoints are set aside where a tile begins."""
        if self._is_shared(progress) or self.of(progress).written:
            return 0
        start = progress.num_computed
        first = -(-start // self._size) * self._size
        for tile in range(first, start + num_steps, self._size):
            if (tile + self._size) % self._fixed.reach == 0 and self.pool.has_prefix_index:
                return tile - start
        return num_steps

    def let_go(self, progress: Progress, start: int) -> None:
        """Nothing: states do not grow."""

    def trim(self, progress: Progress, num_used: int) -> None:
        held = self.of(progress)
        for position in [position for position in held.written if position > num_used * self._size]:
            self.pool.release(held.written.pop(position))
        if not held.written:
            self._open.pop(progress.id, None)

    def fork(self, source: Progress, target: Progress, num_used: int) -> Held:
        pages = self.of(source).pages
        self.pool.share(pages)
        return _Held(list(pages))

    def used(self, progress: Progress) -> list[BlockId]:
        return self._live(self.of(progress).pages, progress.num_computed)

    def listed(self, progress: Progress) -> list[BlockId]:
        held = self.of(progress)
        return [*held.pages, *(page for pages in held.written.values() for page in pages)]

    def release(self, progress: Progress) -> None:
        super().release(progress)
        self._open.pop(progress.id, None)
        for content in self.of(progress).kept:  # they wait as long as its blocks do
            self.pool.renew(self.pool.kept(self.place, content))

    def is_spoilt(self, chunk: Chunk) -> bool:
        first, last = chunk.start // self._size, (chunk.start + chunk.count) // self._size
        return last > first and (last - first) % 2 == 0

    @property
    def passing(self) -> list[BlockId]:
        return self._sources

    def check(self, progress: Progress, name: str) -> None:
        held = self.of(progress)
        assert len(held.pages) == self._fixed.num_own, f"{name}: other pages of states than it should"
        assert bool(held.written) == (progress.id in self._open), f"{name}: its checkpoints are not followed"
        assert min(held.written, default=1) > 0, f"{name}: a checkpoint of nothing"
