"""Block tables: how requests take, share, copy, move and give back blocks.

Always: what the plan under construction must carry out (`copies`, `swap_outs`, `swap_ins`) or tell (`new_tables`) is
collected here until the plan takes it. A runner does swap-outs first, then swap-ins, then copies, then writes, so a
block may be given up and taken again within one plan. A host block that a swap-in reads is free for others only from
the next plan on.
"""

from chairlift.core.ids import BlockId, Content, RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import BlockCopy, Chunk, StepPlan
from chairlift.core.request import Progress
from chairlift.core.scheduling.pool import BlockPool
from chairlift.core.scheduling.preemption import Preemption


class Tables:
    def __init__(self, limits: Limits, preemption: Preemption, has_prefix_index: bool) -> None:
        self.pool = BlockPool(limits.num_blocks, limits.block_size, has_prefix_index)
        self.host = BlockPool(preemption.num_host_blocks, limits.block_size, has_prefix_index=False)
        self._preemption = preemption
        self.copies: list[BlockCopy] = []
        self.swap_outs: list[BlockCopy] = []
        self.swap_ins: list[BlockCopy] = []
        self.new_tables: list[RequestId] = []
        self._leaving: list[BlockId] = []  # host blocks that the plan under construction reads

    def begin(self) -> None:
        """A new plan is being made."""
        if self._leaving and not self.swap_ins:
            self.host.release(self._leaving)
            self._leaving = []

    def seal(self, step: int, chunks: list[Chunk], num_tokens: int, num_decodes: int, num_drafting: int) -> StepPlan:
        """The complete plan, with every move that its chunks rely on."""
        outs, ins, copies = tuple(self.swap_outs), tuple(self.swap_ins), tuple(self.copies)
        tables = tuple(self.new_tables)
        self.swap_outs, self.swap_ins, self.copies, self.new_tables = [], [], [], []
        return StepPlan(step, tuple(chunks), copies, num_tokens, num_decodes, outs, ins, num_drafting, tables)

    def num_cached(self, progress: Progress) -> int:
        """Known tokens that need not be computed, in whole blocks."""
        blocks, _ = self._find(progress)
        return len(blocks) * self.pool.block_size

    def num_needed(self, progress: Progress) -> int:
        """Free blocks that admitting a request takes, cached ones that it would share included."""
        num_all = -(-len(progress.tokens) // self.pool.block_size)
        if progress.host_blocks:
            return num_all
        blocks, _ = self._find(progress)
        return num_all - len(blocks) + self.pool.num_idle(blocks)

    def admit(self, progress: Progress) -> None:
        """Gives a request blocks for all its known tokens: cached ones as they are, or those it had, moved back in."""
        size = self.pool.block_size
        num_all = -(-len(progress.tokens) // size)
        if progress.host_blocks:
            self.replace(progress, self.pool.take(num_all))
            self.swap_ins += map(BlockCopy, progress.host_blocks, progress.blocks)
            self._leaving += progress.host_blocks
            progress.host_blocks = []
            progress.num_computed, progress.num_saved = progress.num_saved, 0
            return
        blocks, content = self._find(progress)
        self.pool.share(blocks)
        progress.num_computed = len(blocks) * size
        progress.num_published, progress.content = len(blocks), content
        self.replace(progress, blocks + self.pool.take(num_all - len(blocks)))

    def replace(self, progress: Progress, blocks: list[BlockId]) -> None:
        """Gives a request another block table."""
        progress.blocks = blocks
        self.new_tables.append(progress.request.id)

    def _find(self, progress: Progress) -> tuple[list[BlockId], Content]:
        request = progress.request
        # The last known token is always computed: its logits are what the next one is sampled from. Cached prompt
        # tokens are not computed, so a prompt that is still to be scored cannot use them.
        is_scored = request.params.prompt_logprobs is None or len(progress.prompt_scores) == len(request.prompt) - 1
        limit = len(progress.tokens) - 1 if is_scored else 0
        return self.pool.find(request.attributes.cache_salt, progress.tokens, limit)

    def grow(self, progress: Progress) -> None:
        """Makes sure the next token's place exists and is this request's alone."""
        if progress.num_computed == len(progress.blocks) * self.pool.block_size:
            progress.blocks.extend(self.pool.take(1))
        elif progress.has_shared_tail:
            progress.has_shared_tail = False
            tail = progress.blocks[-1]
            if self.pool.counts[tail] > 1:
                (own,) = self.pool.take(1)
                self.pool.release([tail])
                self.replace(progress, [*progress.blocks[:-1], own])
                self.copies.append(BlockCopy(tail, own))

    def extend(self, progress: Progress, num_tokens: int) -> None:
        """Blocks for so many tokens in all, of which the next has its place."""
        progress.blocks.extend(self.pool.take(-(-num_tokens // self.pool.block_size) - len(progress.blocks)))

    def trim(self, progress: Progress, num_tokens: int) -> None:
        """Gives back the blocks beyond so many tokens. The table is another: plans in flight keep theirs, and a runner
        may have noted as written what it never wrote."""
        num_used = -(-num_tokens // self.pool.block_size)
        self.pool.release(progress.blocks[num_used:])
        self.replace(progress, progress.blocks[:num_used])

    def fork(self, source: Progress, target: Progress) -> None:
        """`target` starts from the computed tokens of `source`; whoever writes to their shared tail first copies it."""
        num_used = -(-source.num_computed // self.pool.block_size)
        self.replace(target, source.blocks[:num_used])
        self.pool.share(target.blocks)
        target.num_computed = source.num_computed
        target.num_published, target.content = source.num_published, source.content
        if source.num_computed % self.pool.block_size:
            source.has_shared_tail = target.has_shared_tail = True

    def publish(self, progress: Progress, num_full: int) -> None:
        """The first blocks are computed and their tokens known: others may start from them."""
        if not self.pool.has_prefix_index:
            return
        size = self.pool.block_size
        if progress.num_published == 0:
            progress.content = progress.request.attributes.cache_salt
        for i in range(progress.num_published, num_full):
            tokens = tuple(progress.tokens[i * size : (i + 1) * size])
            progress.content = self.pool.publish(progress.blocks[i], progress.content, tokens)
        progress.num_published = num_full

    def preempt(self, progress: Progress) -> bool:
        """Gives the blocks back; True when their content was moved out to come back, False when it is forgotten."""
        num_used = -(-progress.num_computed // self.pool.block_size)
        is_swap = 0 < num_used <= self.host.num_free and self._preemption.is_swap(num_used, progress.num_computed)
        num_computed, published, content = progress.num_computed, progress.num_published, progress.content
        if is_swap:
            progress.host_blocks = self.host.take(num_used)
            self.swap_outs += map(BlockCopy, progress.blocks, progress.host_blocks)
        self.give_back(progress, keeps_host=is_swap)
        if is_swap:
            progress.num_saved = num_computed
            progress.num_published, progress.content = published, content
        return is_swap

    def give_back(self, progress: Progress, keeps_host: bool = False) -> None:
        self.pool.release(progress.blocks)
        progress.blocks = []
        progress.num_computed = progress.num_published = 0
        progress.has_shared_tail = False
        if not keeps_host:
            self.host.release(progress.host_blocks)
            progress.host_blocks = []
            progress.num_saved = 0

    def check(self, live: list[Progress]) -> None:
        """Raises AssertionError unless the books balance."""
        self.pool.check([progress.blocks for progress in live])
        self.host.check([*(progress.host_blocks for progress in live), self._leaving])
