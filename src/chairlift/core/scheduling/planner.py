"""What the next step computes.

There are no phases. Every request has tokens that are known and tokens that are computed, and a step computes some of
the difference under a token budget: first one token for each request that is only one behind (a decode), then as much
of the prompts in progress as fits, then new prompts. When blocks run out the policy names a victim. Drafts take only
what is then left of the budget and the blocks.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.policy import Allowance, StepView
from chairlift.core.ports import Drafter
from chairlift.core.request import Progress, Request
from chairlift.core.scheduling.running_set import RunningSet
from chairlift.core.scheduling.step_size import PromptRoom, StepBudget, StepPace

_new = tuple.__new__  # a named tuple made without the call of its own constructor takes half the time


class Runnable(NamedTuple):
    decodes: list[Progress]  # one token behind
    prompts: list[Progress]  # further behind
    num_growing: int  # blocks that decodes need


class Planner:
    def __init__(self, running_set: RunningSet, drafter: Drafter | None) -> None:
        self.issued: dict[int, float] = {}  # steps not committed yet, and when they were planned
        self.budget = StepBudget(running_set.limits.max_step_tokens)
        self.last_prompt_s = 0.0  # how long the last step took that computed prompts
        self.pace = StepPace()
        self._committed = 0.0  # when a step was last
        self._running_set = running_set
        self._drafter = drafter
        self._rules = running_set.rules
        self._limits = running_set.limits
        self._tables = running_set.tables
        self._pool = running_set.tables.pool
        self._has_kinds = bool(running_set.tables.kinds)
        kinds = running_set.limits.pages.kinds
        self._max_drafts = min([self._limits.max_drafts, *(kind.max_drafts for kind in kinds)])
        self._per_block = running_set.limits.pages.per_block

    def plan(self, now: float) -> StepPlan | None:
        self._tables.begin()
        has_moves = self._running_set.leave_asked(now)
        has_yielded = self._running_set.preempt_yielding(now)
        self._running_set.give_slots(now)
        runnable = self._classify()
        plan = self._plan(runnable, self._allow(runnable, has_yielded, now), now)
        if plan is None and has_moves:
            plan = self._seal([], 0, 0, 0, now)
        while plan is None and self._running_set.num_ready and not self.issued:
            # Nothing is in flight, so neither the rules nor members of searches, which keep their blocks while they
            # wait for a preempted one, may hold everything back.
            plan = self._plan(self._classify(), Allowance(), now, is_urgent=True)
            if plan is None:
                self._running_set.preempt(now)
        return plan

    def learn(self, plan: StepPlan, now: float) -> None:
        """A step was committed."""
        planned = self.issued.pop(plan.step)
        if plan.num_decodes < len(plan.chunks):
            self.last_prompt_s = now - planned
        # A step planned while another was in flight began when that one ended.
        num_tokens = sum([chunk.count for chunk in plan.chunks[plan.num_decoding :]])
        self.pace.learn(num_tokens, now - max(planned, self._committed))
        self._committed = now
        self.budget.grow()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in flight, nothing is drafted, and steps are as large as they may be."""
        return not self.issued and self._drafter is None and self.budget.is_whole

    def skip(self, begin: float, times: Sequence[float]) -> None:
        """Steps of decodes alone were made, the first planned at `begin`, each after the one before had ended."""
        self.pace.skip(max(begin, self._committed), times)
        self._committed = times[-1]

    def _allow(self, runnable: Runnable, has_preempted: bool, now: float) -> Allowance:
        waiting = self._rules.waiting
        view = StepView(
            now,
            len(waiting),
            next(iter(waiting.values())).arrival if waiting else now,
            len(self._running_set.preempted),
            self._running_set.num_admitted,
            len(runnable.decodes),
            len(runnable.prompts),
            self._running_set.num_free,
            self.last_prompt_s,
            has_preempted,
            self.pace.fixed_s,
            self.pace.token_s,
        )
        return self._rules.allow(view)

    def _classify(self) -> Runnable:
        size, counts, per_block = self._pool.block_size, self._pool.counts, self._per_block
        decodes: list[Progress] = []
        prompts: list[Progress] = []
        num_growing = 0
        for progress in self._running_set.running.values():
            pending, computed = progress.num_pending, progress.num_computed
            known = len(progress.tokens) + pending
            if known == progress.limit or (pending and progress.is_stepwise):
                continue  # its last token is in flight, or `awaits_result`, spelled out for speed
            if known - computed == 1:
                decodes.append(progress)
                if computed == len(progress.blocks) * size or (
                    progress.has_shared_tail and counts[progress.blocks[-1]] > 1
                ):
                    num_growing += per_block
                    if self._has_kinds:
                        self._tables.let_go(progress, computed)
                        num_growing += self._tables.num_growing(progress)
            else:
                prompts.append(progress)
        return Runnable(decodes, prompts, num_growing)

    def _plan(self, runnable: Runnable, allowance: Allowance, now: float, is_urgent: bool = False) -> StepPlan | None:
        chunks: list[Chunk] = []
        self._rules.look_again()
        if allowance.decodes:
            if runnable.num_growing > self._pool.num_free:
                runnable = self._make_room(now)
                if not is_urgent:
                    num_new = min(allowance.num_new, self._allow(runnable, True, now).num_new)
                    allowance = allowance._replace(num_new=num_new)
            if self._has_kinds:
                self._tables.reserve(runnable.num_growing)
            self._plan_decodes(runnable.decodes[: self.budget.num_tokens], chunks, now)
        num_decodes = len(chunks)
        budget = self.budget.num_tokens - num_decodes
        budget -= self._plan_prompts(runnable.prompts, allowance, budget, chunks, is_urgent, now)
        if not chunks:
            return None
        num_drafting = 0
        if self._drafter is not None and budget > 0:
            drafting, budget = self._draft(self._drafter, chunks, num_decodes, budget)
            num_drafting = len(drafting)
            num_decodes -= num_drafting
        return self._seal(chunks, self.budget.num_tokens - budget, num_decodes, num_drafting, now)

    def _seal(self, chunks: list[Chunk], num_tokens: int, num_decodes: int, num_drafting: int, now: float) -> StepPlan:
        plan = self._tables.seal(chunks, num_tokens, num_decodes, num_drafting)
        if not self._running_set.slots.is_empty:
            adapters, loads = self._running_set.slots.of_plan(chunks)
            plan = plan._replace(adapters=adapters, loads=loads)
        self.issued[plan.step] = now
        return plan

    def _make_room(self, now: float) -> Runnable:
        """Preempt until every remaining decode has room to grow."""
        while True:
            self._running_set.preempt(now)
            runnable = self._classify()
            if runnable.num_growing <= self._pool.num_free:
                return runnable

    def _plan_decodes(self, decodes: list[Progress], chunks: list[Chunk], now: float) -> None:
        size = self._pool.block_size
        leads: list[Progress] = []
        for progress in decodes:
            start = progress.num_computed
            if start == len(progress.blocks) * size or progress.has_shared_tail:
                self._tables.grow(progress)
            if progress.siblings:
                leads.append(progress)
                self._add_chunk(progress, 1, chunks, now)
                continue
            # The common case, spelled out for speed: one token of a request that is one behind.
            tokens, tables = progress.tokens, progress.tables
            num_blocks = len(progress.blocks)
            chunks.append(
                _new(Chunk, (progress.request, start, 1, tokens, len(tokens), tables, num_blocks, progress.alone, ()))
            )
            progress.num_computed = start + 1
            progress.num_pending += 1
        if self._rules.is_serving:
            self._rules.decoded([p for p in decodes if p not in leads] if leads else decodes, now)

    def _plan_prompts(
        self,
        prompts: list[Progress],
        allowance: Allowance,
        budget: int,
        chunks: list[Chunk],
        is_urgent: bool,
        now: float,
    ) -> int:
        """Go on with prompts, then admit new ones; the number of their tokens."""
        num_chunks = len(chunks) + (self._limits.max_step_prompts or self._limits.max_running)
        room = PromptRoom(min(budget, allowance.num_tokens), allowance.num_more)
        for progress in prompts if allowance.prompts else ():
            num_left = progress.num_known - progress.num_computed
            if len(chunks) == num_chunks or not room.takes(num_left):
                break
            room.take(self._add_chunk(progress, room.left, chunks, now))
        num_new = allowance.num_new if self._rules.waiting or self._running_set.preempted else 0
        while room.left > 0 and num_new > 0 and len(chunks) < num_chunks:
            admitted = self._running_set.admit(is_urgent and not chunks, now, room.left if room.is_whole else None)
            if admitted is None:
                break
            room.take(self._add_chunk(admitted, room.left, chunks, now))
            num_new -= 1
        return room.num_taken

    def _draft(self, drafter: Drafter, chunks: list[Chunk], num_decodes: int, budget: int) -> tuple[list[Chunk], int]:
        """Add drafts to decodes and move those that have some behind the others; the rest of the budget."""
        size, running, per_block = self._pool.block_size, self._running_set.running, self._per_block
        num_kept = len(running) - len(chunks)  # blocks that requests in other steps may need before this one ends
        plain: list[Chunk] = []
        drafting: list[Chunk] = []
        for chunk in chunks[:num_decodes]:
            request, progress = chunk.request, running[chunk.request.id]
            num_free = max(0, self._pool.num_free // per_block - num_kept)
            num_places = size * (chunk.num_blocks + num_free) - chunk.start - 1
            count = min(budget, self._max_drafts, num_places, progress.limit - chunk.num_tokens - 1)
            drafts: tuple[int, ...] = ()
            if count > 0 and len(chunk.samples) == 1 and progress.beams is None:
                guesses = drafter.draft(request, chunk.tokens, count)[:count]
                drafts = _before_stop(guesses, request.stop_ids)
            if drafts:
                count = 1 + len(drafts)
                budget -= len(drafts)
                self._tables.extend(progress, chunk.start + count)
                drafting.append(chunk._replace(count=count, num_blocks=len(progress.blocks), drafts=drafts))
            else:
                plain.append(chunk)
        chunks[:num_decodes] = plain + drafting
        return drafting, budget

    def _add_chunk(self, progress: Progress, budget: int, chunks: list[Chunk], now: float) -> int:
        """Plan as many of the next known tokens as the budget and the pages of windows allow; their number."""
        start, known = progress.num_computed, progress.num_known
        count = min(budget, known - start)
        if self._has_kinds:
            count = self._tables.reach(progress, count)
            if count == 0:
                return 0
        progress.num_computed += count
        samples: tuple[Request, ...] = ()
        if start + count == known:
            samples = self._running_set.fork(progress, now) if progress.siblings else progress.alone
            progress.num_pending += 1
        if self._rules.is_serving:
            num_prompt = max(0, min(count, len(progress.request.prompt) - start))
            self._rules.served(progress, num_prompt, len(samples), now)
        tokens, tables, num_blocks = progress.tokens, progress.tables, len(progress.blocks)
        chunks.append(Chunk(progress.request, start, count, tokens, len(tokens), tables, num_blocks, samples))
        return count


def _before_stop(drafts: Sequence[int], stop_ids: frozenset[int]) -> tuple[int, ...]:
    """Drafts before the first stop token, so that no result brings tokens after a request's last."""
    return tuple(takewhile(lambda token: token not in stop_ids, drafts))
