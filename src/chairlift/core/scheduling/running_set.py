"""The running set, the queues beside it, and how requests move between them.

Always: a live request is running, waiting, preempted, a pending fork, arriving or leaving, and exactly one of these;
only running ones hold blocks of the cache; no more run than the limit, counting the pending forks of running ones. What
happened is told as events. Does not know what a step computes or what came of it.
"""

import math
from collections.abc import Iterator
from itertools import chain

from chairlift.core.events import Admitted, Event, Exported, Finished, Forked, Preempted
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.tables import Tables
from chairlift.core.plan import StepPlan
from chairlift.core.policy import MemoryView, RequestView
from chairlift.core.request import FinishReason, Progress, Request, State
from chairlift.core.scheduling.adapter_slots import AdapterSlots
from chairlift.core.scheduling.guard import Guard
from chairlift.core.scheduling.queue import RankedQueue


class RunningSet:
    def __init__(self, limits: Limits, tables: Tables, rules: Guard) -> None:
        self.limits = limits
        self.tables = tables
        self.rules = rules
        self.live: dict[RequestId, Progress] = {}
        self.running: dict[RequestId, Progress] = {}  # in order of admission
        self.preempted: dict[RequestId, Progress] = {}
        self.arriving: dict[RequestId, Progress] = {}
        self.leaving: dict[RequestId, int] = {}  # and the step that moves their content to the host
        self.left: dict[RequestId, Progress] = {}  # of the leaving ones, those whose content is there
        self._asked: dict[RequestId, None] = {}  # to leave before the next step
        self.events: list[Event] = []
        self.num_admitted = 0  # from the waiting requests
        self._returning = RankedQueue()  # preempted requests, admitted before waiting ones
        self._num_requeued = 0
        self._expiring = RankedQueue()  # live requests with a timeout, the next to expire first
        self._num_promised = 0  # pending forks of running requests
        self.slots = AdapterSlots(limits.num_adapter_slots)

    @property
    def num_free(self) -> int:
        return self.limits.max_running - len(self.running) - self._num_promised

    def num_cached(self, view: RequestView) -> int:
        """Known tokens of a waiting request that the cache holds now."""
        return self.tables.num_cached(self.live[view.id])

    @property
    def num_ready(self) -> int:
        """Live requests that wait for nothing outside the engine."""
        return len(self.live) - len(self.arriving) - len(self.left)

    def enqueue(self, lead: Progress, siblings: list[Progress], now: float) -> None:
        """A prompt begins to wait; its further samples fork from it when it is computed."""
        for progress in (lead, *siblings):
            self.live[progress.id] = progress
            self.slots.add(progress.request.attributes.adapter)
            if progress.expires is not None:
                self._expiring.push(progress.id, (progress.expires,))
        if _can_move(lead, siblings) and 0 < lead.request.num_moved < lead.num_known and self.tables.expect(lead):
            lead.state = State.ARRIVING
            self.arriving[lead.id] = lead
        else:
            self._wait(lead, siblings, now)

    def arrive(self, request: RequestId, is_whole: bool, now: float) -> None:
        """The content of an arriving request is in its host blocks; or it is not, and will be computed."""
        progress = self.arriving.pop(request, None)  # None: it has ended meanwhile
        self.tables.arrive(request, progress if is_whole else None)
        if progress is not None:
            self._wait(progress, [], now)

    def ask_to_leave(self, request: RequestId) -> None:
        """Before the next step, with its content; `Exported` follows."""
        if request in self.live:
            self._asked[request] = None

    @property
    def has_asked(self) -> bool:
        """Whether a request leaves before the next step."""
        return bool(self._asked)

    def leave_asked(self, now: float) -> bool:
        """Take the requests that were asked to leave out of the running set; whether blocks have to be moved."""
        asked, self._asked = self._asked, {}
        for request in asked:
            progress = self.live.get(request)
            if progress is None:
                continue
            can_move = progress.state is State.RUNNING and _can_move(progress, progress.siblings) and progress.is_scored
            if can_move and self.tables.leave(progress):
                self._leave_running(progress)
                progress.state = State.LEAVING
                self.leaving[request] = self.tables.step
            else:
                self.events.append(Exported(request, now, 0, ()))
        return bool(self.tables.swap_outs)

    def tell_left(self, step: int, now: float) -> None:
        """A step was carried out, or was not: requests whose content it moved have left."""
        for request in [
            request for request, moved in self.leaving.items() if moved <= step and request not in self.left
        ]:
            progress = self.live[request]
            self.events.append(Exported(request, now, progress.num_saved, tuple(progress.host_blocks)))
            if progress.host_blocks:
                self.left[request] = progress
            else:  # the step failed
                del self.leaving[request]
                self.requeue(progress)

    def _wait(self, lead: Progress, siblings: list[Progress], now: float) -> None:
        lead.state, lead.lead, lead.siblings = State.WAITING, None, siblings
        for sibling in siblings:
            sibling.state, sibling.lead = State.PENDING_FORK, lead
        self.rules.push(lead, now)

    def admit(self, is_urgent: bool, now: float, max_tokens: int | None = None) -> Progress | None:
        """Admit the next request if the running set and memory have room and at most `max_tokens` of it are left to
        compute; if urgent, the rule is not asked."""
        if self.num_free == 0:
            return None
        progress = self._next(now)
        if progress is None or 1 + len(progress.siblings) > self.num_free or progress.awaits_result:
            return None
        found, pool = self.tables.find(progress), self.tables.pool
        if max_tokens is not None and self.tables.num_left(progress, found) > max_tokens:
            return None
        num_new = self.tables.num_needed(progress, found)
        if num_new > pool.num_free:
            return None
        if self.running and not is_urgent:
            memory = MemoryView(pool.num_free, pool.block_size, self.running.values(), self.tables.pages)
            if not self.rules.fits(progress, num_new, memory):
                return None
        else:
            self.rules.look_again()
        self.slots.enter(progress.request.attributes.adapter, self._adapters())
        num_missed = self.tables.admit(progress, found)
        self._leave_queue(progress, now)
        self.num_admitted += progress.state is State.WAITING
        progress.state = State.RUNNING
        self.running[progress.id] = progress
        self._num_promised += len(progress.siblings)
        num_prompt = len(progress.request.prompt)
        num_cached = min(progress.num_computed, num_prompt)
        self.events.append(Admitted(progress.id, now, num_cached, min(num_missed, num_prompt - num_cached)))
        return progress

    def _next(self, now: float) -> Progress | None:
        """The request to admit next. Waiting ones whose adapter is in no slot are parked until it is."""
        returning = self._returning.first()
        if returning is not None:
            return self.preempted[returning]
        while (progress := self.rules.first(now)) is not None:
            adapter = progress.request.attributes.adapter
            if self.slots.can_enter(adapter, self._adapters(), bool(self.running)):
                return progress
            self.slots.wait(adapter, self._adapters())
            self.rules.park(progress, now)
        return None

    def _adapters(self) -> Iterator[int]:
        """That requests use now: preempted ones return before all others, to the slot they had, and so does one whose
        move fails."""
        leaving = (self.live[request] for request in self.leaving if request not in self.left)
        for progress in chain(self.running.values(), self.preempted.values(), leaving):
            yield progress.request.attributes.adapter

    def check_slots(self) -> None:
        self.slots.check(adapter for adapter in self._adapters() if adapter)

    def give_slots(self, now: float) -> None:
        """Have requests wait in the policy's order again whose adapters are there now."""
        if not self.slots.queue:
            return
        ready = self.slots.turn(self._adapters(), bool(self.running))
        if not ready:
            return
        for progress in [p for p in self.rules.parked.values() if p.request.attributes.adapter in ready]:
            self.rules.unpark(progress, now)

    def fork(self, lead: Progress, now: float) -> tuple[Request, ...]:
        """This step completes the prompt: its pending forks start from its blocks."""
        forks, lead.siblings = lead.siblings, []
        self._num_promised -= len(forks)
        for sibling in forks:
            self.tables.fork(lead, sibling)
            sibling.tokens, sibling.num_pending = lead.tokens.copy(), 1
            sibling.state, sibling.lead = State.RUNNING, None
            self.running[sibling.id] = sibling
            self.events.append(Forked(sibling.id, now, lead.id))
        return (lead.request, *(sibling.request for sibling in forks))

    def preempt_yielding(self, now: float) -> bool:
        """While the running set is full, the policy may have running requests wait again in favour of better ones."""
        if not self.rules.has_ranked or self.num_free > 0:
            return False
        # Members of a search stay together; a request whose last token is in flight is about to leave anyway.
        named = self.rules.yielding(self.running, now)
        yielding = [progress for progress in named if progress.beams is None and progress.num_known < progress.limit]
        for progress in yielding:
            self._preempt(progress, now)
            self._wait(progress, progress.siblings, now)
        return bool(yielding)

    def preempt(self, now: float) -> None:
        """Preempt the policy's victim; it is admitted again before any waiting request."""
        victim = self.rules.victim(self.running, now)
        self._preempt(victim, now)
        self.requeue(victim)

    def _preempt(self, progress: Progress, now: float, can_swap: bool = True) -> None:
        self._leave_running(progress)
        num_computed = progress.num_computed
        is_swapped = self.tables.preempt(progress, can_swap, len(self.running))
        self.events.append(Preempted(progress.id, now, num_computed, is_swapped))
        progress.num_preempted += 1

    def roll_back(self, plan: StepPlan, now: float) -> None:
        """Return the requests of the last plan to where they were before it: nothing came of it."""
        self.slots.undo(plan.loads)
        self.drop_swap_outs(plan)
        moved = {move.target for move in (*plan.swap_ins, *plan.copies)}
        for chunk in plan.chunks:
            for request in dict.fromkeys((chunk.request, *chunk.samples)):
                progress = self.live[request.id]
                progress.num_computed = chunk.start
                progress.num_pending -= request in chunk.samples
                self.tables.trim(progress, progress.num_known)
                # Swapped in, copied or forked by this plan: the content to start from is lost.
                if len(chunk.samples) > 1 or self.tables.is_lost(progress, chunk, moved):
                    self._preempt(progress, now, can_swap=False)
                    self.requeue(progress)

    def drop_swap_outs(self, plan: StepPlan) -> None:
        """The plan was not carried out: what it was to swap out is lost and has to be computed again."""
        lost = {move.target for move in plan.swap_outs}
        for progress in self.live.values() if lost else ():
            if progress.host_blocks and progress.host_blocks[0] in lost:
                self.tables.release(progress)

    def requeue(self, progress: Progress) -> None:
        progress.state = State.PREEMPTED
        self.preempted[progress.id] = progress
        if progress.beams is None or not progress.num_pending:  # else its search decides first what it continues
            self._num_requeued += 1
            rank = self.tables.preemption.rank(progress.arrival, self._num_requeued)
            self._returning.push(progress.id, rank)

    def continue_from(self, carrier: Progress, parent: Progress, now: float) -> None:
        """A member of a search drops its blocks and continues another; unless both run, it queues again."""
        self.tables.release(carrier)
        if carrier.state is parent.state is State.RUNNING:
            self.tables.fork(parent, carrier)
            self.events.append(Forked(carrier.id, now, parent.id))
        elif carrier.state is State.RUNNING:
            self._leave_running(carrier)
            self.requeue(carrier)

    def expire(self, now: float) -> None:
        """End requests past their timeout."""
        while (first := self._expiring.first()) is not None:
            progress = self.live[first]
            if progress.expires is None or progress.expires > now:
                return
            self.cancel(progress, FinishReason.TIMEOUT, "its time is over", now)

    @property
    def next_expiry(self) -> float:
        """When the next request is past its timeout."""
        first = self._expiring.first()
        expires = None if first is None else self.live[first].expires
        return math.inf if expires is None else expires

    def cancel(self, progress: Progress, finish: FinishReason, message: str, now: float) -> None:
        """End a sample by itself, or a search as a whole."""
        if progress.beams is None and progress.lead is not None:
            progress.lead.siblings.remove(progress)
            self._num_promised -= progress.lead.state is State.RUNNING
        self.end(progress, finish, message, now)

    def end(self, progress: Progress, finish: FinishReason, message: str, now: float) -> None:
        """End a request without a last token, and the search it belongs to."""
        beams = progress.beams
        for member in [progress] if beams is None else [self.live[member] for member in beams.members]:
            self.events.append(Finished(member.id, now, finish, message))
            self.remove(member, now)
        if beams is None and progress.siblings:  # the next sample computes the prompt instead
            heir, *others = progress.siblings
            self._wait(heir, others, now)

    def remove(self, progress: Progress, now: float) -> None:
        """Free everything a request holds, at once."""
        self.tables.release(progress)
        self._leave_queue(progress, now)
        self._expiring.remove(progress.id)
        if progress.state is State.RUNNING:
            self._leave_running(progress)
        del self.live[progress.id]
        self.slots.remove(progress.request.attributes.adapter)
        self.rules.left(progress, now)

    def _leave_running(self, progress: Progress) -> None:
        del self.running[progress.id]
        self._num_promised -= len(progress.siblings)

    def _leave_queue(self, progress: Progress, now: float) -> None:
        if progress.state is State.WAITING:
            self.rules.remove(progress, now)
        elif progress.state is State.PREEMPTED:
            del self.preempted[progress.id]
            self._returning.remove(progress.id)
        elif progress.state is State.ARRIVING:
            del self.arriving[progress.id]
        elif progress.state is State.LEAVING:
            del self.leaving[progress.id]
            self.left.pop(progress.id, None)


def _can_move(lead: Progress, siblings: list[Progress]) -> bool:
    """Samples that share blocks, and searches, are computed again elsewhere."""
    return not siblings and lead.beams is None
