"""Steady decoding: many steps at once, where it is certain beforehand what each of them does.

Steps are steady while every live request runs and decodes, but for those on their way to or from another engine, and
none waits: then no rule has anything to decide, and each request gets a token in each step until the first has its
last. `carry_out` leaves the scheduler as so many plans and commits would have left it, block by block: blocks are taken
and published in the same order. Only for runners that compute inside `submit` and whose next token is known: simulated
ones.

    step        0    1    2    3    4
    request a   .    .    P    G    .     G: takes a block before the step, P: publishes one after it
    request b   G    .    .    .    E     E: has its last token; the steps end here

Where layers do not keep all tokens, all that take blocks in a step release what no coming token sees first.

What is not steady is stepped: prompts, waiting and preempted requests, searches, samples that share a block, drafts,
blocks or time that run out, a shared page that is let go, and rules that do not say `skips_steady`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from chairlift.core.ids import RequestId
from chairlift.core.request import Progress
from chairlift.core.scheduling.planner import Planner
from chairlift.core.scheduling.results import Results
from chairlift.core.scheduling.running_set import RunningSet

_LET_GO, _GROW, _PUBLISH = 0, 1, 2  # in this order within a step
Move = tuple[int, int, int]  # step, kind, request by its place in the running set


class Steady(NamedTuple):
    decodes: list[Progress]  # in the order of the running set
    context: int  # tokens that the first step attends to; each further one attends to one more for each decode
    num_steps: int  # at most; only the last may end requests or tell of prefixes
    until: float  # steps planned later are not steady


class Skipped(NamedTuple):
    """What an observer is told of steady steps."""

    requests: list[RequestId]  # that got a token in each step and go on
    ended: list[RequestId]  # and those that ended in the last; their last token is an event of its own
    times: Sequence[float]  # the end of each step
    num_held: int  # blocks before the first step
    taken: list[int]  # the step of each block taken, rising
    released: list[int]  # and of each that became free; fewer in a step than are taken
    num_shared: int


class SteadySteps:
    def __init__(self, running_set: RunningSet, planner: Planner, results: Results) -> None:
        self._running_set = running_set
        self._planner = planner
        self._results = results
        self._tables = running_set.tables
        self._pool = running_set.tables.pool
        self._pages = running_set.tables.pages

    def find(self, token: int, most: int) -> Steady | None:
        """The steady steps from here, `most` at most, if each samples this token; None where the next is not steady."""
        running_set = self._running_set
        running, rules = running_set.running, running_set.rules
        if rules.waiting or not running or len(running) != running_set.num_ready or not rules.skips_steady:
            return None
        if running_set.has_asked or not (self._planner.is_settled and self._tables.is_settled):
            return None
        size = self._pool.block_size
        has_index = self._pool.has_prefix_index
        decodes, context, num_steps = list(running.values()), len(running), most
        for progress in decodes:
            num_computed, num_known = progress.num_computed, len(progress.tokens)
            if (
                num_known - num_computed != 1
                or progress.num_pending
                or progress.is_stepwise
                or progress.has_shared_tail
                or progress.siblings
                or (has_index and progress.num_published != num_computed // size)
            ):
                return None
            request = progress.request
            if token in request.stop_ids or request.params.prompt_logprobs is not None:
                return None
            context += num_computed
            if progress.limit - num_known < num_steps:
                num_steps = progress.limit - num_known
        for kind in self._tables.kinds:
            num_steps = min([kind.num_unshared(progress, num_steps) for progress in decodes])
        num_steps = self._num_untold(decodes, self._num_with_blocks(decodes, num_steps))
        return Steady(decodes, context, num_steps, running_set.next_expiry) if num_steps > 0 else None

    def _num_with_blocks(self, decodes: list[Progress], num_steps: int) -> int:
        """Steps before the first that would preempt, if nothing were released."""
        num_free = self._pool.num_free // self._pages.per_block
        if len(decodes) * (1 + num_steps // self._pool.block_size) <= num_free:
            return num_steps
        growing = self._growing(decodes, num_steps)
        return num_steps if len(growing) <= num_free else growing[num_free]

    def _num_untold(self, decodes: list[Progress], num_steps: int) -> int:
        """Steps up to the first that routers are told something of."""
        news = self._pool.news
        if news is None or not num_steps:
            return num_steps
        if self._pool.has_prefix_index:
            span = news.span
            num_steps = min(num_steps, min([span - progress.num_computed % span for progress in decodes]))
        growing = self._growing(decodes, num_steps)
        per_block = self._pages.per_block
        num_silent = self._pool.num_silent(len(growing) * per_block) // per_block
        return num_steps if num_silent == len(growing) else growing[num_silent] + 1

    def _growing(self, decodes: list[Progress], num_steps: int) -> list[int]:
        """The step of each block taken."""
        size = self._pool.block_size
        firsts = [len(progress.blocks) * size - progress.num_computed for progress in decodes]
        return sorted([step for first in firsts if first < num_steps for step in range(first, num_steps, size)])

    def carry_out(self, steady: Steady, token: int, begin: float, times: Sequence[float]) -> Skipped:
        """Do the first steps, which end at these times; `begin` is when the first is planned."""
        decodes, count, pool = steady.decodes, len(times), self._pool
        num_held, num_shared = pool.num_held, pool.num_shared
        moves = self._moves(decodes, count)
        tokens = [token] * count
        going_on: list[RequestId] = []
        ending: list[Progress] = []
        for progress in decodes:
            progress.num_computed += count
            text = progress.tokens
            text += tokens
            if len(text) == progress.limit:
                text.pop()  # it comes last of all
                ending.append(progress)
            else:
                going_on.append(progress.request.id)
        released: list[int] = []
        for step, kind, place in moves:
            progress = decodes[place]
            if kind == _GROW:
                self._tables.add_blocks(progress, 1)
            elif kind == _PUBLISH:
                self._tables.publish(progress, progress.num_published + 1)
            else:
                num_free = pool.num_free
                self._tables.let_go(progress, len(progress.blocks) * pool.block_size)
                released += [step] * (pool.num_free - num_free)
        self._tables.skip(count)
        self._planner.skip(begin, times)
        self._tell_rules(decodes, count, times[-1])
        for progress in ending:
            self._results.end(progress, token, times[-1])
        per_block = self._pages.per_block
        taken = [step for step, kind, _ in moves if kind == _GROW for _ in range(per_block)]
        return Skipped(going_on, [each.request.id for each in ending], times, num_held, taken, released, num_shared)

    def _moves(self, decodes: list[Progress], num_steps: int) -> list[Move]:
        size, has_index = self._pool.block_size, self._pool.has_prefix_index
        moves: list[Move] = []
        for place, progress in enumerate(decodes):
            num_computed = progress.num_computed
            step = len(progress.blocks) * size - num_computed
            while step < num_steps:
                moves.append((step, _GROW, place))
                if self._tables.kinds:
                    moves.append((step, _LET_GO, place))
                step += size
            if has_index:
                step = size - 1 - num_computed % size
                while step < num_steps:
                    moves.append((step, _PUBLISH, place))
                    step += size
        moves.sort()
        return moves

    def _tell_rules(self, decodes: list[Progress], num_steps: int, now: float) -> None:
        rules = self._running_set.rules
        if rules.is_serving:
            for _ in range(num_steps):  # a sum of fractions, added in the same order
                rules.decoded(decodes, now)
