"""Hypothesis drives the scheduler move by move: any order of arrivals, aborts, plans and commits keeps the books, under
any rules and any way to preempt."""

from collections import deque
from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chairlift.config.options.rules import make_admission, make_policy, make_prefill
from chairlift.core.events import Finished, RuleFailed, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.pages import Group, pages_of
from chairlift.core.memory.preemption import MODES, REQUEUES, Preemption
from chairlift.core.plan import StepPlan
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from chairlift.core.ports import RunnerFull
from chairlift.core.scheduling.invariants import check
from chairlift.core.scheduling.scheduler import Scheduler
from fakes.drafts import RandomDrafter
from fakes.ledger import LedgerRunner, expected, expected_beams
from fakes.requests import make_samples, make_search


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        block_size=st.sampled_from([1, 2, 3, 4, 16]), num_blocks=st.integers(3, 12), max_running=st.integers(1, 5),
        spare=st.integers(0, 6), prompts=st.integers(0, 2), has_index=st.booleans(),
        policy=st.sampled_from(
            [*POLICIES, "mlfq:levels=3,quantum=2,starve=6", "similar-length:patience=1", "longest-prefix:window=2",
             "fcfs:victim=shortest"]
        ),
        prefill=st.sampled_from(
            [*PREFILLS, "delay:factor=9,after_preempt=wait", "delay:factor=9,exclusive=true", "batched-prefill:size=2"]
        ),
        admission=st.sampled_from(list(ADMISSIONS)),
        mode=st.sampled_from(MODES), num_host_blocks=st.sampled_from([0, 3, 30]), token_s=st.sampled_from([0.1, 1.0]),
        max_drafts=st.sampled_from([0, 0, 1, 4]), requeue=st.sampled_from(REQUEUES),
        window=st.sampled_from([0, 0, 1, 3, 6]), num_groups=st.integers(1, 3), num_state_pages=st.integers(0, 2),
    )  # fmt: skip
    def start(
        self, block_size: int, num_blocks: int, max_running: int, spare: int, prompts: int, has_index: bool,
        policy: str, prefill: str, admission: str, mode: str, num_host_blocks: int, token_s: float, max_drafts: int,
        requeue: str, window: int, num_groups: int, num_state_pages: int,
    ) -> None:  # fmt: skip
        groups = (Group("window", num_groups, window),) if window else ()
        groups += (Group("fixed", num_state_pages, 2 * block_size, 1),) if num_state_pages else ()
        max_model_len = block_size * num_blocks
        pages = pages_of(block_size, max_running + spare, groups)
        num_blocks = max(num_blocks, pages.num_in_prompt(max_model_len))
        self.limits = Limits(
            vocab_size=5,
            max_model_len=max_model_len,
            block_size=block_size,
            num_blocks=num_blocks,
            groups=groups,
            max_running=max_running,
            max_step_tokens=max_running + spare,
            max_step_prompts=prompts,
            max_drafts=max_drafts,
        )
        self.scheduler = Scheduler(
            self.limits,
            make_policy(policy),
            make_prefill(prefill),
            make_admission(admission),
            Preemption(
                mode=mode,
                num_host_blocks=num_host_blocks,
                block_copy_s=0.3,
                step_times=((1, 3.0), (2, 3.0 + token_s)),
                requeue=requeue,
            ),
            has_prefix_index=has_index,
            drafter=RandomDrafter(max_drafts, 5) if max_drafts else None,
        )
        self.runner = LedgerRunner(num_blocks, block_size, 5, 3, num_host_blocks, pages.kinds)
        self.in_flight: deque[StepPlan] = deque()
        self.wanted: dict[RequestId, list[int]] = {}
        self.outputs: dict[RequestId, list[int]] = {}
        self.aborted: set[RequestId] = set()
        self.now = 0.0

    @rule(
        data=st.data(), salt=st.sampled_from(["", "a"]), has_stop=st.booleans(), user=st.sampled_from("ab"),
        timeout_s=st.sampled_from([None, None, 0.0, 3.0, 9.0]),
    )  # fmt: skip
    def add(self, data: st.DataObject, salt: str, has_stop: bool, user: str, timeout_s: float | None) -> None:
        room = self.limits.max_model_len
        prompt = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=room - 1), label="prompt")
        max_output = data.draw(st.integers(1, min(room - len(prompt), 9)), label="max_output")
        n = data.draw(st.integers(1, min(3, self.limits.max_running)), label="n")
        samples = make_samples(
            len(self.wanted) + 1, prompt, n, max_output, cache_salt=salt, seed=7, user=user, priority=n,
            timeout_s=timeout_s, stop_ids=frozenset([3]) if has_stop else frozenset(),
        )  # fmt: skip
        self.wanted |= {request.id: expected(request, 5) for request in samples}
        self.scheduler.add(samples, self._tick())

    @precondition(lambda self: self.limits.max_running >= 2 and _search_room(self.limits) >= 2)
    @rule(data=st.data(), has_stop=st.booleans(), timeout_s=st.sampled_from([None, 4.0]))
    def search(self, data: st.DataObject, has_stop: bool, timeout_s: float | None) -> None:
        """A beam search of two members: each needs room for all of its text."""
        room = _search_room(self.limits)
        prompt = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=min(room - 1, 20)), label="prompt")
        max_output = data.draw(st.integers(1, min(room - len(prompt), 6)), label="max_output")
        n = data.draw(st.integers(1, 2), label="n")
        stops = frozenset([3]) if has_stop else frozenset[int]()
        members = make_search(len(self.wanted) + 1, prompt, 2, max_output, n=n, stop_ids=stops, timeout_s=timeout_s)
        best = expected_beams(members[0], 5)
        self.wanted |= {m.id: best[i] if i < len(best) else [] for i, m in enumerate(members)}
        self.scheduler.add(members, self._tick())

    @precondition(lambda self: self.scheduler.live)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.scheduler.abort(data.draw(st.sampled_from(sorted(self.scheduler.live)), label="request"), self._tick())

    @precondition(lambda self: len(self.in_flight) < 3)
    @rule()
    def plan(self) -> None:
        plan = self.scheduler.schedule(self._tick())
        if plan is not None:
            self.runner.submit(plan)
            self.in_flight.append(plan)

    @precondition(lambda self: len(self.in_flight) < 3)
    @rule()
    def plan_what_does_not_fit(self) -> None:
        """Plans in flight are committed before the next."""
        plan = self.scheduler.schedule(self._tick())
        if plan is not None:
            self.runner.is_too_large = lambda _: True
            with suppress(RunnerFull):
                self.runner.submit(plan)
            self.runner.is_too_large = lambda _: False
            self.scheduler.roll_back(plan, "does not fit", self._tick())
        while self.in_flight:
            self.commit()

    @precondition(lambda self: self.in_flight)
    @rule()
    def commit(self) -> None:
        self.scheduler.commit(self.in_flight.popleft(), self.runner.collect(), self._tick())
        for event in self.scheduler.take_events():
            assert not isinstance(event, RuleFailed), event.message
            if isinstance(event, Token):
                self.outputs.setdefault(event.request, []).append(event.token)
            elif isinstance(event, Finished):
                self.aborted.add(event.request)

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "scheduler"):
            check(self.scheduler)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(4000):
            if not self.scheduler.live and not self.in_flight:
                break
            self.plan()
            if self.in_flight:
                self.commit()
        assert not self.scheduler.live, "requests never finished"
        assert self.scheduler.pool.num_free == self.limits.num_blocks
        self.aborted |= {event.request for event in self.scheduler.take_events() if isinstance(event, Finished)}
        for id, wanted in self.wanted.items():
            output = self.outputs.get(id, [])
            assert output == (wanted[: len(output)] if id in self.aborted else wanted), f"request {id} got other tokens"

    def _tick(self) -> float:
        self.now += 1.0
        return self.now


def _search_room(limits: Limits) -> int:
    """Tokens that two members of a search may have, as `num_offered` has it."""
    pages, size = limits.pages, limits.block_size
    lengths = range(0, limits.max_model_len + 1, size)
    return max(n for n in lengths if pages.num_decoding(n) + pages.num_in_prompt(n) <= limits.num_blocks)


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
