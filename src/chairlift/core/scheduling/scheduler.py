"""The scheduler: adds and aborts requests, plans steps, commits results.

Plans may be issued before earlier ones are committed. A plan counts a token it will sample as known (pending) at once,
so the next plan can compute it; `commit` brings its value. Results for a request that has ended meanwhile are ignored.
Runners work in order, so blocks can be reused at once. With a drafter, a plan may guess several tokens of a request,
which is then in no other plan before the result is in.

Deterministic: no clock (time comes in as `now`), no randomness, ties by id.
"""

from collections.abc import Mapping, Sequence

from chairlift.core.admission import PromptFits
from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Event, Queued, RuleFailed, Shrunk
from chairlift.core.ids import BlockId, RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.pool import BlockPool
from chairlift.core.memory.preemption import Preemption
from chairlift.core.memory.tables import Tables
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policy import Admission, Policy, Prefill, Service
from chairlift.core.ports import Drafter
from chairlift.core.prefill import Mixed
from chairlift.core.request import FinishReason, Progress, Request
from chairlift.core.routing.news import PrefixNews
from chairlift.core.scheduling.beams import Beams
from chairlift.core.scheduling.guard import Guard
from chairlift.core.scheduling.planner import Planner
from chairlift.core.scheduling.predictor import LengthPredictor
from chairlift.core.scheduling.results import Results
from chairlift.core.scheduling.running_set import RunningSet
from chairlift.core.scheduling.steady import SteadySteps

_NO_REQUEST = RequestId(0)


class Scheduler:
    def __init__(
        self,
        limits: Limits,
        policy: Policy,
        prefill: Prefill | None = None,
        admission: Admission | None = None,
        preemption: Preemption | None = None,
        has_prefix_index: bool = True,
        drafter: Drafter | None = None,
        news: PrefixNews | None = None,
    ) -> None:
        """`news`: told of the prefix index, for routers to know."""
        if (drafter is None) != (limits.max_drafts == 0):
            raise InvalidConfig(f"max_drafts is {limits.max_drafts}, with{'out' * (drafter is None)} a drafter")
        self.limits = limits
        self.tables = Tables(limits, preemption or Preemption(), has_prefix_index, news)
        self._rules = Guard(policy, prefill or Mixed(), admission or PromptFits())
        self._running_set = RunningSet(limits, self.tables, self._rules)
        policy.watch(self._running_set)
        self._is_drafting = drafter is not None
        self._planner = Planner(self._running_set, drafter)
        self._predictor = LengthPredictor()
        self._results = Results(self._running_set, self._predictor)
        self.steady = SteadySteps(self._running_set, self._planner, self._results)
        # A live request is in exactly one of the others, or a pending fork.
        self.live = self._running_set.live
        self.running = self._running_set.running
        self.preempted = self._running_set.preempted
        self.arriving = self._running_set.arriving
        self.leaving = self._running_set.leaving
        self.waiting = self._rules.waiting

    @property
    def pool(self) -> BlockPool:
        return self.tables.pool

    @property
    def prompt_token_s(self) -> float:
        """How long steps take lately for each prompt token; 0 while not known."""
        return self._planner.pace.token_s

    @property
    def step_budget(self) -> int:
        """How many tokens the next step may compute."""
        return self._planner.budget.num_tokens

    def add(self, samples: tuple[Request, ...], now: float) -> None:
        """Queue one prompt; several requests are samples of it, or members of a beam search, and share its blocks."""
        lead = Progress.of(samples[0], now)
        others = [Progress.of(request, now, lead.tokens) for request in samples[1:]]
        params = lead.request.params
        beams = None
        if params.beam_width:
            beams = Beams([request.id for request in samples], params.length_penalty, lead.request.stop_ids)
        expected = params.max_tokens or self._predictor.expect(lead.request.attributes.user, lead.request.max_output)
        for progress in (lead, *others):
            progress.beams, progress.expected_output = beams, expected
            progress.is_stepwise = self._is_drafting or beams is not None
            self._running_set.events.append(Queued(progress.id, now))
        self._running_set.enqueue(lead, others, now)

    def abort(self, request: RequestId, now: float, has_moved: bool = False) -> None:
        """End a request at once, whatever its state; an unknown id has already ended."""
        progress = self.live.get(request)
        if progress is not None:
            self._running_set.cancel(progress, FinishReason.MOVED if has_moved else FinishReason.ABORT, "", now)

    def is_new(self, request: RequestId) -> bool:
        """Whether it waits for its first step."""
        progress = self.waiting.get(request)
        return progress is not None and not progress.num_preempted

    def leave(self, request: RequestId, now: float) -> None:
        """Have a request leave with its keys and values, before the next step. `Exported` tells when they lie in which
        blocks of the host, if they can be moved; abort it when they were read. An unknown id has already ended."""
        self._running_set.ask_to_leave(request)

    def arrive(self, request: RequestId, is_whole: bool, now: float) -> None:
        """What `incoming` asked for was written; or not, and the request is computed from its beginning."""
        self._running_set.arrive(request, is_whole, now)

    def incoming(self, request: RequestId) -> list[BlockId]:
        """Host blocks that wait for the keys and values of a request; none where it had no room, or sends none. To be
        written only before `arrive`, which is to be called once, whatever becomes of the request."""
        return self.tables.incoming(request)

    @property
    def adapters(self) -> Mapping[int, int]:
        """Live requests of each adapter that has any."""
        return self._running_set.slots.live

    @property
    def counts_users(self) -> bool:
        """Whether its policy goes by what users were served, in other replicas too."""
        return self._rules.counts_users

    def served_elsewhere(self, services: Sequence[Service], now: float) -> None:
        """What users were served in other replicas since the last call."""
        self._rules.served_elsewhere(services, now)

    @property
    def has_work(self) -> bool:
        """Whether there are requests that wait for nothing outside the engine."""
        return self._running_set.num_ready > 0

    def schedule(self, now: float) -> StepPlan | None:
        """The next step without expired requests, or None when there is nothing to compute now."""
        self._running_set.expire(now)
        plan = self._planner.plan(now)
        if self._rules.failures:
            self._running_set.events += [RuleFailed(_NO_REQUEST, now, failure) for failure in self._rules.failures]
            self._rules.failures.clear()
        return plan

    def commit(self, plan: StepPlan, result: StepResult, now: float) -> None:
        """Take in a step's result. Plans are committed in the order they were issued."""
        self._planner.learn(plan, now)
        self._results.commit(plan, result, now)
        self._tell_left(plan, now)

    def roll_back(self, plan: StepPlan, message: str, now: float) -> None:
        """Undo the last issued plan, which did not fit the runner's memory: its requests go on in smaller steps. A plan
        of one token cannot shrink and fails. Plans issued before must be committed before the next is made."""
        if plan.num_tokens <= 1:
            self.fail(plan, message, now)
            return
        del self._planner.issued[plan.step]
        self._planner.budget.shrink(plan.num_tokens)
        self._running_set.events.append(Shrunk(_NO_REQUEST, now, self._planner.budget.num_tokens, message))
        self._running_set.roll_back(plan, now)
        self._tell_left(plan, now)

    def fail(self, plan: StepPlan, message: str, now: float) -> None:
        """End every request of a plan that could not be carried out."""
        del self._planner.issued[plan.step]
        self._running_set.drop_swap_outs(plan)
        self._running_set.slots.undo(plan.loads)
        for chunk in plan.chunks:
            for request in (chunk.request, *chunk.samples):
                progress = self.live.get(request.id)
                if progress is not None:
                    self._running_set.end(progress, FinishReason.ERROR, message, now)
        self._tell_left(plan, now)

    def _tell_left(self, plan: StepPlan, now: float) -> None:
        if self._running_set.leaving:
            self._running_set.tell_left(plan.step, now)

    def check_slots(self) -> None:
        """Raise AssertionError unless every adapter in use is in a slot."""
        self._running_set.check_slots()

    def take_events(self) -> list[Event]:
        events, self._running_set.events = self._running_set.events, []
        return events
