"""Skipping ahead is the same as stepping: the same plans, events, times and block pools in random small worlds, under
every rule.

`Expanded` turns skipped steps into the events of single ones, so the two runs are compared event by event. Of the plans
of a run that skips each must be equal, block tables included, to the plan of the same number of the run that steps.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from chairlift.core.attributes import Attributes
from chairlift.core.events import Event, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import MODES, Preemption
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from chairlift.core.ports import Unobserved
from chairlift.core.request import FinishReason, Request
from chairlift.core.routing.news import PrefixNews
from chairlift.core.scheduling.invariants import check
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.core.scheduling.steady import Skipped
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.run import simulate
from chairlift.telemetry.timeline import Timeline
from fakes.worlds.draws import PARAMETERS, with_states, with_windows

Arriving = list[tuple[float, Request]]
WithKind = Callable[[Limits, random.Random], Limits]


class Stepped(Unobserved):
    """Keeps all events in order of time, and the plans by number."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.events: list[Event] = []
        self.plans: dict[int, StepPlan] = {}
        self.num_skipped = 0
        self.timeline = Timeline(scheduler.pool)
        self._scheduler = scheduler

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        self.timeline.added(samples, now)

    def planned(self, plan: StepPlan | None, now: float) -> None:
        self.timeline.planned(plan, now)
        if plan is not None:
            self.plans[plan.step] = plan.snapshot()

    def happened(self, events: Sequence[Event]) -> None:
        self.timeline.happened(events)
        self.events += events
        check(self._scheduler)


class Expanded(Stepped):
    def skipped(self, steps: Skipped) -> None:
        self.num_skipped += len(steps.times)
        self.timeline.skipped(steps)
        for time in steps.times:
            self.events += [Token(request, time, 0) for request in steps.requests]
            if time != steps.times[-1]:
                self.events += [Token(request, time, 0) for request in steps.ended]
        check_running(self._scheduler, steps)


def check_running(scheduler: Scheduler, steps: Skipped) -> None:
    check(scheduler)
    assert not set(steps.ended) & set(scheduler.live)
    assert set(steps.requests) == set(scheduler.running)


def drawn(
    seed: int, policy: str, prefill: str, admission: str, kinds: Sequence[WithKind] = ()
) -> tuple[list[Scheduler], CostModel, Arriving, int]:
    """Twice the same scheduler, with what it is to do; and the size of a closed loop."""
    rng = random.Random(seed)
    size = rng.choice([1, 2, 4, 16])
    limits = Limits(
        vocab_size=9, max_model_len=80, block_size=size, num_blocks=rng.randint(80, 200) // size,
        max_running=rng.randint(1, 6), max_step_tokens=rng.randint(6, 40), max_step_prompts=rng.choice([0, 1]),
    )  # fmt: skip
    for with_kind in kinds:
        limits = with_kind(limits, random.Random(-seed))
    preemption = Preemption(
        mode=rng.choice(MODES), num_host_blocks=rng.choice([0, 20]), block_copy_s=0.5, step_times=((1, 0.1), (9, 0.3))
    )
    has_index = rng.random() < 0.8
    chosen = [{name: rng.choice(values) for name, values in PARAMETERS.get(rule, {}).items() if rng.random() < 0.5}
              for rule in (policy, prefill)]  # fmt: skip
    has_routers = rng.random() < 0.3
    made = [
        Scheduler(limits, POLICIES[policy](**chosen[0]), PREFILLS[prefill](**chosen[1]), ADMISSIONS[admission](),
                  preemption, has_index, news=PrefixNews(4 * size) if has_routers else None)
        for _ in range(2)
    ]  # fmt: skip
    rungs = rng.choice([(), (2, 4, 8)])
    cost = CostModel(
        linear=((1, 0.013), (8, 0.0217)), step_s=0.001, kv_token_s=1e-4, chunk_s=3e-4, sample_s=1e-5,
        start_s=rng.choice([0.0, 0.003]), start_row_s=rng.choice([0.0, 1e-5]), rungs=rungs, pair_s=1e-5,
    )  # fmt: skip
    return made, cost, list(arriving(rng, limits)), rng.choice([0, 0, 0, 3])


def arriving(rng: random.Random, limits: Limits) -> Arriving:
    found: Arriving = []
    now = 0.0
    for i in range(rng.randint(1, 14)):
        now += rng.choice([0.0, 0.01, 0.3, 2.0])
        prompt = tuple(rng.randrange(2) for _ in range(rng.randint(1, 24)))
        params = SamplingParams(max_tokens=rng.randint(1, 56), temperature=0.0, ignore_eos=True)
        stops = frozenset([0]) if rng.random() < 0.03 else frozenset()
        attributes = Attributes(user=rng.choice(["", "ann"]), share=rng.choice([1.0, 3.0]), priority=rng.randint(0, 2))
        timeout_s = rng.choice([None, None, None, 0.4])
        request = Request(
            id=RequestId(i + 1), prompt=prompt, params=params, stop_ids=stops, attributes=attributes, seed=i,
            max_output=min(params.max_tokens or 1, limits.max_model_len - len(prompt)), timeout_s=timeout_s,
        )  # fmt: skip
        found.append((now, request))
    return found


def by_request(events: Sequence[Event]) -> dict[RequestId, list[Event]]:
    found: dict[RequestId, list[Event]] = {}
    for event in events:
        found.setdefault(event.request, []).append(event)
    return found


def pool_of(scheduler: Scheduler) -> dict[str, Any]:
    """All that a block pool remembers, in its order."""
    state = {name: value for name, value in vars(scheduler.pool).items() if name != "news"}
    news = scheduler.pool.news
    return {**state, "_cached": list(scheduler.pool._cached), "news": None if news is None else vars(news)}


def compare(
    seed: int, policy: str = "fcfs", prefill: str = "mixed", admission: str = "prompt", kinds: Sequence[WithKind] = ()
) -> int:
    """The number of steps that were skipped."""
    (plain, ahead), cost, requests, concurrency = drawn(seed, policy, prefill, admission, kinds)
    stepped, skipping = Stepped(plain), Expanded(ahead)  # type: ignore[abstract]  # what they do not override does nothing
    simulate(requests, plain, cost, stepped, concurrency)
    simulate(requests, ahead, cost, skipping, concurrency)
    assert by_request(skipping.events) == by_request(stepped.events)
    assert all(stepped.plans[step] == plan for step, plan in skipping.plans.items())
    assert pool_of(ahead) == pool_of(plain)
    assert vars(ahead._planner.pace) == vars(plain._planner.pace)
    assert skipping.timeline.report() == stepped.timeline.report()
    return skipping.num_skipped


@pytest.mark.sampled(1)
@pytest.mark.parametrize("policy", POLICIES)
def test_skipping_ahead_is_the_same_as_stepping_under_every_combination_of_rules(policy: str) -> None:
    num_skipped = dict.fromkeys(PREFILLS, 0)
    for i, (prefill, admission) in enumerate(itertools.product(PREFILLS, ADMISSIONS)):
        for seed in range(6 * i, 6 * i + 6):
            try:
                num_skipped[prefill] += compare(seed, policy, prefill, admission)
            except AssertionError as error:
                raise AssertionError(f"seed {seed} {policy} {prefill} {admission}: {error}") from error
    assert num_skipped.pop("static") == 0  # it remembers each step
    assert all(num_skipped.values()), num_skipped


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(5))
def test_it_is_in_many_worlds(block: int) -> None:
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        compare(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("kinds", [[with_windows], [with_states], [with_windows, with_states]])
@pytest.mark.parametrize("block", range(3))
def test_it_is_where_layers_do_not_keep_all_tokens(block: int, kinds: list[WithKind]) -> None:
    num_skipped = 0
    for seed in range(2000 + 100 * block, 2100 + 100 * block):
        try:
            num_skipped += compare(seed, kinds=kinds)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert num_skipped > 1000


def test_a_rule_of_a_user_is_asked_in_every_step() -> None:
    class Mine(PREFILLS["mixed"]):  # type: ignore[name-defined,misc]
        """Says nothing of skipping, whatever the rule it is made of says."""

    (_, ahead), cost, requests, _ = drawn(1, "fcfs", "mixed", "prompt")
    mine = Scheduler(ahead.limits, POLICIES["fcfs"](), Mine())
    observer = Expanded(mine)  # type: ignore[abstract]
    simulate(requests, mine, cost, observer)
    assert not observer.num_skipped


def test_a_request_that_stops_at_the_sampled_token_is_stepped() -> None:
    limits = Limits(vocab_size=9, max_model_len=80, block_size=4, num_blocks=20, max_running=2, max_step_tokens=20)
    scheduler = Scheduler(limits, POLICIES["fcfs"]())
    params = SamplingParams(max_tokens=9, min_tokens=4, temperature=0.0)
    request = Request(
        id=RequestId(1), prompt=(1, 2), params=params, max_output=9, seed=0, stop_ids=frozenset([0])
    )  # fmt: skip
    observer = Expanded(scheduler)  # type: ignore[abstract]
    simulate([(0.0, request)], scheduler, CostModel(linear=((1, 1.0),)), observer)
    assert observer.num_skipped == 0
    last = observer.events[-1]
    assert isinstance(last, Token) and last.finish is FinishReason.STOP
