"""Hypothesis drives the scheduler move by move: any order of arrivals, aborts, plans and commits keeps the books."""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chairlift.core.events import Token
from chairlift.core.ids import RequestId
from chairlift.core.invariants import check
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan
from chairlift.core.policies.fcfs import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduler import Scheduler
from fakes.ledger import LedgerRunner, expected
from fakes.requests import make_samples


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        block_size=st.integers(1, 4), num_blocks=st.integers(3, 12), max_running=st.integers(1, 5),
        spare=st.integers(0, 6), prompts=st.integers(0, 2), has_index=st.booleans(),
    )  # fmt: skip
    def start(
        self, block_size: int, num_blocks: int, max_running: int, spare: int, prompts: int, has_index: bool
    ) -> None:
        self.limits = Limits(
            vocab_size=5,
            max_model_len=block_size * num_blocks,
            block_size=block_size,
            num_blocks=num_blocks,
            max_running=max_running,
            max_step_tokens=max_running + spare,
            max_step_prompts=prompts,
        )
        self.scheduler = Scheduler(self.limits, Fcfs(), has_prefix_index=has_index)
        self.runner = LedgerRunner(num_blocks, block_size, 5, depth=3)
        self.in_flight: deque[StepPlan] = deque()
        self.requests: dict[RequestId, Request] = {}
        self.outputs: dict[RequestId, list[int]] = {}
        self.now = 0.0

    @rule(data=st.data(), salt=st.sampled_from(["", "a"]), has_stop=st.booleans())
    def add(self, data: st.DataObject, salt: str, has_stop: bool) -> None:
        room = self.limits.max_model_len
        prompt = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=room - 1), label="prompt")
        max_output = data.draw(st.integers(1, min(room - len(prompt), 9)), label="max_output")
        n = data.draw(st.integers(1, min(3, self.limits.max_running)), label="n")
        samples = make_samples(
            len(self.requests) + 1, prompt, n, max_output, cache_salt=salt, seed=7,
            stop_ids=frozenset([3]) if has_stop else frozenset(),
        )  # fmt: skip
        for request in samples:
            self.requests[request.id] = request
        self.scheduler.add(samples, self._tick())

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

    @precondition(lambda self: self.in_flight)
    @rule()
    def commit(self) -> None:
        self.scheduler.commit(self.in_flight.popleft(), self.runner.collect(), self._tick())
        for event in self.scheduler.take_events():
            if isinstance(event, Token):
                self.outputs.setdefault(event.request, []).append(event.token)

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "scheduler"):
            check(self.scheduler)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(2000):
            if not self.scheduler.live and not self.in_flight:
                break
            self.plan()
            if self.in_flight:
                self.commit()
        assert not self.scheduler.live, "requests never finished"
        assert self.scheduler.pool.num_free == self.limits.num_blocks
        for id, output in self.outputs.items():
            assert output == expected(self.requests[id], 5)[: len(output)], f"request {id} got other tokens"

    def _tick(self) -> float:
        self.now += 1.0
        return self.now


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
