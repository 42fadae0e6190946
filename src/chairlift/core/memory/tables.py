"""Block tables: how requests take, share, copy, move and release blocks.

Always: what the plan under construction must carry out (`copies`, `swap_outs`, `swap_ins`) or tell (`new_tables`) is
collected here until `seal`. A runner does swap-outs first, then swap-ins, then copies, then writes, so a block may be
released and taken again within one plan. A host block that a swap-in reads is free only from the next plan on.
"""

from collections.abc import Sequence
from itertools import chain

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.fixed import FixedTables
from chairlift.core.memory.held import Held, KindTables
from chairlift.core.memory.pages import Fixed, Kind, Window
from chairlift.core.memory.pool import BlockPool, Prefix
from chairlift.core.memory.preemption import Preemption
from chairlift.core.memory.window import WindowTables
from chairlift.core.packed import TOKEN_BYTES, packed
from chairlift.core.plan import BlockCopy, Chunk, StepPlan
from chairlift.core.request import Progress
from chairlift.core.routing.news import PrefixNews

_MEMORY = 8  # returns of preempted requests that count


def _tables_of(kind: Kind, pool: BlockPool, place: int) -> KindTables:
    if isinstance(kind, Fixed):
        return FixedTables(pool, place, kind)
    assert isinstance(kind, Window)
    return WindowTables(pool, place, kind)


class Tables:
    def __init__(
        self, limits: Limits, preemption: Preemption, has_prefix_index: bool, news: PrefixNews | None = None
    ) -> None:
        self.pages = limits.pages
        kinds = self.pages.kinds
        self.pool = BlockPool(limits.num_blocks, limits.block_size, has_prefix_index, kinds, news)
        self.kinds = [_tables_of(kind, self.pool, place) for place, kind in enumerate(kinds)]
        self._reserve = limits.max_running * self.pages.per_block
        self.host = BlockPool(preemption.num_host_blocks, limits.block_size, has_prefix_index=False)
        self.preemption = preemption
        self._found_share = 0.0  # of a preempted request's tokens: in the cache when it is admitted again
        self.step = 1  # of the plan under construction
        self.copies: list[BlockCopy] = []
        self.swap_outs: list[BlockCopy] = []
        self.swap_ins: list[BlockCopy] = []
        self.new_tables: list[RequestId] = []
        self._leaving: list[BlockId] = []  # host blocks that the plan under construction reads
        # Host blocks that are written from outside, with what another engine computed of these requests.
        self._incoming: dict[RequestId, list[BlockId]] = {}

    def begin(self) -> None:
        """Start a new plan."""
        for kind in self.kinds:
            kind.settle()
        if self._leaving and not self.swap_ins:
            self.host.release(self._leaving)
            self._leaving = []

    def seal(
        self,
        chunks: list[Chunk],
        num_tokens: int,
        num_decodes: int,
        num_drafting: int,
    ) -> StepPlan:
        """The complete plan, with every move that its chunks rely on."""
        step, outs, ins, copies = self.step, tuple(self.swap_outs), tuple(self.swap_ins), tuple(self.copies)
        tables = tuple(self.new_tables)
        self.swap_outs, self.swap_ins, self.copies, self.new_tables = [], [], [], []
        self.step += 1
        checkpoints = tuple(chain(*(kind.checkpoints(chunks) for kind in self.kinds)))
        for kind in self.kinds:
            kind.sealed()
        return StepPlan(
            step, tuple(chunks), copies, num_tokens, num_decodes, outs, ins, num_drafting, tables, checkpoints
        )

    @property
    def is_settled(self) -> bool:
        """Whether the next plan has nothing to carry out or to tell but its chunks."""
        moves = self.copies or self.swap_outs or self.swap_ins or self.new_tables or self._leaving
        return not moves and all(kind.is_settled for kind in self.kinds)

    def skip(self, num_plans: int) -> None:
        """So many plans were carried out that had only chunks."""
        self.step += num_plans

    def num_cached(self, progress: Progress) -> int:
        """Known tokens that need not be computed, in whole blocks."""
        return len(self.find(progress).blocks) * self.pool.block_size

    def num_left(self, progress: Progress, found: Prefix) -> int:
        """Known tokens that are to be computed after admission."""
        num_found = progress.num_saved if progress.host_blocks else len(found.blocks) * self.pool.block_size
        return len(progress.tokens) - num_found

    def num_needed(self, progress: Progress, found: Prefix) -> int:
        """Free blocks that admitting a request takes, cached ones included."""
        num_all = -(-len(progress.tokens) // self.pool.block_size)
        num_taken = num_all
        for kind in self.kinds:
            num_taken += kind.num_needed(progress, found, num_all)
        if progress.host_blocks:
            return num_taken
        counts = self.pool.counts
        return num_taken - sum([counts[block] > 0 for block in chain(found.blocks, *found.beside)])

    def admit(self, progress: Progress, found: Prefix) -> int:
        """Give a request blocks for all its known tokens: cached ones as they are, or those on the host, swapped in.
        How many tokens are computed again whose blocks were there, as some kind of layers cannot go on after them."""
        size = self.pool.block_size
        num_all = -(-len(progress.tokens) // size)
        if progress.num_preempted and self.preemption.mode == "auto":
            self._learn(len(found.blocks) * size / len(progress.tokens))
        if progress.host_blocks:
            blocks = self.pool.take(num_all)
            num_used = -(-progress.num_saved // size)
            restored = [kind.restore(progress, num_all) for kind in self.kinds]
            self.replace(progress, blocks, [held for held, _ in restored])
            targets = chain(blocks[:num_used], *(pages for _, pages in restored))
            self.swap_ins += map(BlockCopy, progress.host_blocks, targets)
            self._leaving += progress.host_blocks
            progress.host_blocks = []
            progress.num_computed, progress.num_saved = progress.num_saved, 0
            return 0
        blocks, content, beside = found.blocks, found.content, found.beside
        self.pool.share(blocks)
        for shared in beside:
            self.pool.share(shared)
        self.pool.renew(found.beyond)
        progress.num_computed = len(blocks) * size
        progress.num_published, progress.content = len(blocks), content
        own = self.pool.take(num_all - len(blocks))
        begun = [kind.begin(progress, found, num_all) for kind in self.kinds]
        self.replace(progress, blocks + own, [held for held, _ in begun])
        for _, copies in begun:
            self.copies += copies
        return len(found.beyond) * size

    def _learn(self, share: float) -> None:
        """Blocks that were released stay in the cache until others take them, whether swapped out or dropped."""
        self._found_share += (share - self._found_share) / _MEMORY

    def replace(self, progress: Progress, blocks: list[BlockId], held: Sequence[Held]) -> None:
        """Give a request other tables."""
        progress.blocks, progress.held, progress.table_step = blocks, held, self.step
        progress.tables = (blocks, *[each.pages for each in held])
        self.new_tables.append(progress.request.id)

    def find(self, progress: Progress) -> Prefix:
        """What the cache holds of a request that does not run; costs a look-up for each block found."""
        request = progress.request
        # The last known token is always computed: the next one is sampled from its logits. Cached prompt tokens are
        # not computed, so a prompt that is still to be scored cannot use them.
        limit = len(progress.tokens) - 1 if progress.is_scored else 0
        tokens = b""
        if self.pool.has_prefix_index:
            tokens = packed(progress.tokens) if len(progress.tokens) > len(request.prompt) else request.packed.tokens
        return self.pool.find(request.attributes.prefix_root, tokens, limit)

    def grow(self, progress: Progress) -> None:
        """Make room for the next token in a block that no other table lists."""
        if progress.num_computed == len(progress.blocks) * self.pool.block_size:
            self.add_blocks(progress, 1)
        elif progress.has_shared_tail:
            progress.has_shared_tail = False
            tail = progress.blocks[-1]
            if self.pool.counts[tail] > 1:
                (own,) = self.pool.take(1)
                self.pool.release([tail])
                self.copies.append(BlockCopy(tail, own))
                for kind in self.kinds:
                    self.copies += kind.copy_tail(progress)
                self.replace(progress, [*progress.blocks[:-1], own], progress.held)

    def add_blocks(self, progress: Progress, count: int) -> None:
        """Append blocks to the table of a request that is not in its prompt."""
        progress.blocks.extend(self.pool.take(count))
        for kind in self.kinds:
            copies = kind.grow(progress, count)
            if copies:
                self.copies += copies
                self.replace(progress, progress.blocks, progress.held)

    def extend(self, progress: Progress, num_tokens: int) -> None:
        """Add blocks until there is room for so many tokens; `grow` has made room for the next."""
        self.add_blocks(progress, -(-num_tokens // self.pool.block_size) - len(progress.blocks))

    def trim(self, progress: Progress, num_tokens: int) -> None:
        """Release the blocks beyond so many tokens. The table is replaced: plans in flight keep theirs, and a runner
        may have noted as written what it never wrote."""
        num_used = -(-num_tokens // self.pool.block_size)
        self.pool.release(progress.blocks[num_used:])
        for kind in self.kinds:
            kind.trim(progress, num_used)
        self.replace(progress, progress.blocks[:num_used], progress.held)

    def fork(self, source: Progress, target: Progress) -> None:
        """Start `target` from the computed tokens of `source`; the first to write to a shared tail copies it."""
        num_used = -(-source.num_computed // self.pool.block_size)
        blocks = source.blocks[:num_used]
        self.pool.share(blocks)
        self.replace(target, blocks, [kind.fork(source, target, num_used) for kind in self.kinds])
        target.num_computed = source.num_computed
        target.num_published, target.content = source.num_published, source.content
        if source.num_computed % self.pool.block_size:
            source.has_shared_tail = target.has_shared_tail = True

    def publish(self, progress: Progress, num_full: int) -> None:
        """Index the first blocks: they are computed and their tokens known."""
        if not self.pool.has_prefix_index:
            return
        size = self.pool.block_size
        if progress.num_published == 0:
            progress.content = progress.request.attributes.prefix_root
        prompt, num_bytes = progress.request.packed, TOKEN_BYTES * size
        for i in range(progress.num_published, num_full):
            tokens = prompt.tokens[i * num_bytes : (i + 1) * num_bytes]
            if len(tokens) < num_bytes:
                tokens = packed(progress.tokens[i * size : (i + 1) * size])
            known = prompt.hashes.get((i + 1) * size)
            progress.content = self.pool.publish(progress.blocks[i], progress.content, tokens, known)
            if progress.held:
                for kind in self.kinds:
                    kind.publish(progress, i)
        progress.num_published = num_full

    def preempt(self, progress: Progress, can_swap: bool, num_beside: int) -> bool:
        """Release the blocks; True when their content is swapped out, False when it is dropped. `num_beside`: tokens
        that a step computes without this request."""
        blocks, num_computed = self._used(progress), progress.num_computed
        has_room = can_swap and 0 < len(blocks) <= self.host.num_free
        num_lost = round(num_computed * (1 - self._found_share))
        is_swap = has_room and self.preemption.is_swap(len(blocks), num_lost, num_beside)
        num_published, content = progress.num_published, progress.content
        self.release(progress)
        if is_swap:
            self._swap_out(progress, blocks, num_computed)
            progress.num_published, progress.content = num_published, content
        return is_swap

    def leave(self, progress: Progress) -> bool:
        """Release the blocks and move their content to the host; False, and nothing changes, without room there."""
        blocks, num_computed = self._used(progress), progress.num_computed
        if not 0 < len(blocks) <= self.host.num_free:
            return False
        self.release(progress)
        self._swap_out(progress, blocks, num_computed)
        return True

    def _used(self, progress: Progress) -> list[BlockId]:
        """All that the next token sees: `num_saved` pages, those of all tokens first."""
        num_used = -(-progress.num_computed // self.pool.block_size)
        return [*progress.blocks[:num_used], *chain(*(kind.used(progress) for kind in self.kinds))]

    def _swap_out(self, progress: Progress, blocks: list[BlockId], num_computed: int) -> None:
        progress.host_blocks, progress.num_saved = self.host.take(len(blocks)), num_computed
        self.swap_outs += map(BlockCopy, blocks, progress.host_blocks)

    def expect(self, progress: Progress) -> bool:
        """Set host blocks aside for what another engine sends; False without room."""
        num_needed = self.pages.num_saved(progress.request.num_moved)
        has_room = num_needed <= self.host.num_free
        if has_room:
            self._incoming[progress.id] = self.host.take(num_needed)
        return has_room

    def incoming(self, request: RequestId) -> list[BlockId]:
        """Host blocks to write what arrives for a request to; they stay its own until `arrive`, even if it ends."""
        return self._incoming.get(request, [])

    def arrive(self, request: RequestId, progress: Progress | None) -> None:
        """What was sent for a request is there, for `progress`; None: it is not wanted, or did not come."""
        blocks = self._incoming.pop(request)
        if progress is None:
            self.host.release(blocks)
        else:
            progress.host_blocks, progress.num_saved = blocks, progress.request.num_moved

    def release(self, progress: Progress) -> None:
        """Release all blocks, on the device and on the host."""
        if progress.host_blocks and self.swap_outs:  # no plan under construction may write to blocks of another
            self.swap_outs = [move for move in self.swap_outs if move.target not in progress.host_blocks]
        self.pool.release(progress.blocks)
        for kind in self.kinds if progress.held else ():
            kind.release(progress)
        self.host.release(progress.host_blocks)
        progress.blocks, progress.held, progress.tables = [], (), ((),)
        progress.host_blocks, progress.table_step = [], self.step
        progress.num_computed = progress.num_published = progress.num_saved = 0
        progress.has_shared_tail = False

    def _beside(self, progress: Progress) -> list[BlockId]:
        """Pages that it holds of layers that do not keep all tokens."""
        return list(chain(*(kind.listed(progress) for kind in self.kinds))) if progress.held else []

    def is_lost(self, progress: Progress, chunk: Chunk, moved: set[BlockId]) -> bool:
        """Whether what a chunk started from is gone, as it was broken off with the moves of its plan to these."""
        is_moved = not moved.isdisjoint(progress.blocks + self._beside(progress))
        return is_moved or any(kind.is_spoilt(chunk) for kind in self.kinds)

    def reserve(self, num_growing: int) -> None:
        """Requests that decode need so many pages in the plan under construction, and others in coming ones."""
        for kind in self.kinds:
            kind.reserve = max(num_growing, self._reserve)

    def num_growing(self, progress: Progress) -> int:
        """Pages that `grow` takes beyond those of a block."""
        return sum(kind.num_growing(progress) for kind in self.kinds)

    def let_go(self, progress: Progress, start: int) -> None:
        """Release the pages that no token from `start` on sees."""
        for kind in self.kinds:
            kind.let_go(progress, start)

    def reach(self, progress: Progress, count: int) -> int:
        """Take pages ahead of a prompt; how many of the next `count` known tokens have all they need then."""
        for kind in self.kinds:
            count = kind.reach(progress, count)
        return count

    def check(self, live: list[Progress]) -> None:
        """Raise AssertionError unless the counts agree with the tables."""
        tables = [progress.blocks + self._beside(progress) for progress in live]
        self.pool.check([*tables, *([page] for kind in self.kinds for page in kind.passing)])
        self.host.check([*(progress.host_blocks for progress in live), self._leaving, *self._incoming.values()])
