"""Several tokens a step: what is drafted, and what becomes of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Preempted, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.packed import packed
from chairlift.core.plan import Sampled, StepPlan, StepResult
from chairlift.core.policies.fair_share import FairShare
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.policy import Policy, RequestView
from chairlift.core.request import FinishReason, Request, State
from chairlift.core.scheduling.invariants import check
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.core.score import TokenScore
from fakes.requests import make_request, make_samples

LIMITS = Limits(
    vocab_size=50, max_model_len=40, block_size=4, num_blocks=10, max_running=3, max_step_tokens=12, max_drafts=5
)


class Counting:
    """Guesses 1, 2, 3, ..."""

    def draft(self, request: Request, tokens: Sequence[int], count: int) -> Sequence[int]:
        return range(1, 20)


class Driven:
    """A scheduler whose steps are committed by hand."""

    def __init__(self, policy: Policy | None = None, preemption: Preemption | None = None, **limits: int) -> None:
        sizes = replace(LIMITS, **limits)
        self.scheduler = Scheduler(sizes, policy or Fcfs(), preemption=preemption, drafter=Counting())
        self.now = 0.0

    def add(self, *samples: Request) -> None:
        self.scheduler.add(samples, self.now)

    def plan(self) -> StepPlan:
        plan = self.scheduler.schedule(self.now)
        check(self.scheduler)
        assert plan is not None
        return plan

    def commit(self, plan: StepPlan, token: int = 30, **result: Any) -> list[Token]:
        """Every request samples the token; the tokens that came of it."""
        self.now += 1.0
        tokens = [token] * sum(len(chunk.samples) for chunk in plan.chunks)
        self.scheduler.commit(plan, StepResult(plan.step, tokens, **result), self.now)
        check(self.scheduler)
        return [event for event in self.scheduler.take_events() if isinstance(event, Token)]

    def decode(self, request: Request) -> StepPlan:
        """The first step after its prompt, planned."""
        self.add(request)
        while not self.scheduler.live[request.id].num_output:
            self.commit(self.plan())
        return self.plan()


def more(*tokens: int) -> dict[RequestId, list[Sampled]]:
    return {RequestId(1): [Sampled(token) for token in tokens]}


def test_drafts_ride_behind_the_last_known_token() -> None:
    (chunk,) = Driven().decode(make_request(1, range(6), 20)).chunks
    assert (chunk.start, chunk.count, chunk.num_tokens, chunk.drafts) == (6, 6, 7, (1, 2, 3, 4, 5))
    assert chunk.num_blocks == 3


@pytest.mark.parametrize(
    ("max_output", "limits", "drafts"),
    [
        (20, {"max_drafts": 2}, (1, 2)),
        (4, {}, (1, 2)),  # the token known, two drafts and the one after them
        (2, {}, ()),
        (20, {"max_step_tokens": 4}, (1, 2, 3)),
        (20, {"num_blocks": 2, "max_model_len": 8}, (1,)),
    ],
)
def test_drafts_are_no_more_than_the_limits_the_budget_and_the_blocks_allow(
    max_output: int, limits: dict[str, int], drafts: tuple[int, ...]
) -> None:
    plan = Driven(**limits).decode(make_request(1, range(6), max_output))
    assert plan.chunks[0].drafts == drafts
    assert plan.num_tokens == 1 + len(drafts)
    assert (plan.num_decodes, plan.num_drafting) == ((0, 1) if drafts else (1, 0))


def test_prompts_go_before_drafts_and_decodes_without_drafts_before_those_with_some() -> None:
    driven = Driven()
    driven.add(make_request(1, range(6), 2))  # too short for a draft
    driven.add(make_request(2, range(6), 20))
    driven.commit(driven.plan())
    driven.add(make_request(3, range(20, 28), 20))
    plan = driven.plan()
    assert [(chunk.request.id, chunk.count, len(chunk.drafts)) for chunk in plan.chunks] == [
        (1, 1, 0), (2, 3, 2), (3, 8, 0)
    ]  # fmt: skip
    assert (plan.num_tokens, plan.num_decodes, plan.num_drafting, plan.num_decoding) == (12, 1, 1, 2)


def test_no_block_is_taken_that_a_request_in_another_step_may_need() -> None:
    driven = Driven(num_blocks=4, max_model_len=16)
    driven.add(make_request(1, range(4), 12))
    first = driven.plan()
    driven.add(make_request(2, range(20, 24), 12))
    second = driven.plan()
    driven.commit(first)
    assert driven.plan().chunks[0].drafts == (1, 2, 3)  # one block is free, and the other request's
    driven.commit(second)
    assert [chunk.request.id for chunk in driven.plan().chunks] == [2]
    assert not any(isinstance(event, Preempted) for event in driven.scheduler.take_events())


def test_nothing_is_drafted_from_a_stop_token_on() -> None:
    plan = Driven().decode(make_request(1, range(6), 20, stop_ids=frozenset([3])))
    assert plan.chunks[0].drafts == (1, 2)


def test_several_samples_of_a_prompt_of_one_token_are_not_drafted_for() -> None:
    driven = Driven()
    driven.add(*make_samples(1, [7], 2, 20))
    assert [chunk.drafts for chunk in driven.plan().chunks] == [()]


def test_a_request_waits_for_its_result() -> None:
    driven = Driven()
    plan = driven.decode(make_request(1, range(6), 20))
    assert driven.scheduler.schedule(driven.now) is None
    driven.commit(plan)
    assert driven.plan().chunks[0].start == 7


def test_right_drafts_bring_tokens_and_the_blocks_of_the_others_are_given_back() -> None:
    driven = Driven()
    plan = driven.decode(make_request(1, range(6), 20))
    progress = driven.scheduler.live[RequestId(1)]
    score = TokenScore(2, 0.0, -1.0, 1, ())
    told = driven.commit(plan, 1, more={RequestId(1): [Sampled(2, score), Sampled(40)]})
    assert [(event.token, event.score, event.finish) for event in told] == [
        (1, None, None),
        (2, score, None),
        (40, None, None),
    ]
    assert progress.tokens[6:] == [30, 1, 2, 40]
    assert (progress.num_computed, progress.num_pending, len(progress.blocks)) == (9, 0, 3)
    told = driven.commit(driven.plan(), 41)
    assert (progress.num_computed, len(progress.blocks)) == (10, 3)
    assert driven.plan().chunks[0].start == 10


def test_only_full_blocks_of_accepted_tokens_can_be_found() -> None:
    driven = Driven()
    plan = driven.decode(make_request(1, range(6), 20))
    driven.commit(plan, 1, more=more(9))  # computed: the prompt, 30, and the right draft 1
    pool = driven.scheduler.pool
    text = [*range(6), 30, 1, 9, 3, 4, 5, 0]
    assert len(pool.find("", packed(text), 12)[0]) == 2
    plan = driven.plan()
    driven.commit(plan, 1, more=more(2, 3, 7))
    assert len(pool.find("", packed([*range(6), 30, 1, 9, 1, 2, 3, 0]), 12)[0]) == 3
    assert len(pool.find("", packed([*range(6), 30, 1, 9, 1, 2, 4, 0]), 12)[0]) == 2


@pytest.mark.parametrize(("min_tokens", "tokens"), [(0, [30, 1, 2]), (4, [30, 1, 2, 3, 2])])
def test_a_stop_token_inside_a_result_ends_it_once_there_are_enough(min_tokens: int, tokens: list[int]) -> None:
    driven = Driven()
    driven.add(make_request(1, range(6), 20, stop_ids=frozenset([2]), min_tokens=min_tokens))
    driven.commit(driven.plan())
    told = driven.commit(driven.plan(), 1, more=more(2, 3, 2, 4))
    assert [30, *(event.token for event in told)] == tokens
    assert [event.finish for event in told] == [None] * (len(told) - 1) + [FinishReason.STOP]
    assert not driven.scheduler.live
    assert driven.scheduler.pool.num_held == 0


def test_the_last_token_that_is_asked_for_ends_it() -> None:
    driven = Driven()
    told = driven.commit(driven.decode(make_request(1, range(6), 4)), 1, more=more(2, 3))
    assert [(event.token, event.finish) for event in told] == [(1, None), (2, None), (3, FinishReason.LENGTH)]


def test_a_step_that_is_rolled_back_leaves_nothing_of_its_drafts() -> None:
    driven = Driven()
    plan = driven.decode(make_request(1, range(6), 20))
    progress = driven.scheduler.live[RequestId(1)]
    driven.scheduler.roll_back(plan, "no room", driven.now)
    check(driven.scheduler)
    assert (progress.num_computed, progress.num_pending, len(progress.blocks)) == (6, 0, 2)
    assert driven.plan().chunks[0].drafts == (1, 2)  # half as many tokens


@pytest.mark.parametrize("how", ["abort", "fail", "expire"])
def test_a_request_may_end_while_its_drafts_are_in_flight(how: str) -> None:
    driven = Driven()
    plan = driven.decode(make_request(1, range(6), 20, timeout_s=1.5))
    if how == "fail":
        driven.scheduler.fail(plan, "broken", driven.now)
    elif how == "abort":
        driven.scheduler.abort(RequestId(1), driven.now)
    else:
        assert driven.scheduler.schedule(9.0) is None
    check(driven.scheduler)
    if how != "fail":
        assert driven.commit(plan, 1, more=more(2)) == []
    assert driven.scheduler.pool.num_held == 0


class Yielding(Fcfs):
    """Running requests give way to waiting ones."""

    def yielding(self, running: Sequence[RequestView], now: float) -> Sequence[RequestId]:
        return [view.id for view in running]


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_request_that_is_preempted_with_drafts_in_flight_goes_on_after_all_tokens_they_brought(mode: str) -> None:
    driven = Driven(Yielding(), Preemption(mode=mode, num_host_blocks=8), max_running=1)
    plan = driven.decode(make_request(1, range(6), 20))
    driven.add(make_request(2, range(20, 26), 20))
    assert driven.scheduler.schedule(driven.now) is None, "it is first again, and its tokens are not known"
    progress = driven.scheduler.live[RequestId(1)]
    assert (progress.state, progress.num_saved) == (State.WAITING, 7 if mode == "swap" else 0)
    assert len(driven.commit(plan, 1, more=more(2, 40))) == 3
    again = driven.plan()
    (chunk,) = again.chunks
    # What was sure when it was moved out, or the block that was published before.
    assert (chunk.request.id, chunk.start, chunk.count) == (1, *((7, 3) if mode == "swap" else (4, 6)))
    assert list(chunk.tokens) == [*range(6), 30, 1, 2, 40]


def test_tokens_that_drafts_bring_are_charged() -> None:
    policy = FairShare(prompt=1.0, output=1.0)
    driven = Driven(policy)
    driven.commit(driven.decode(make_request(1, range(6), 20, user="ann")), 1, more=more(2, 40))
    assert policy._served["ann"] == 6 + 1 + 3


@pytest.mark.parametrize(("max_drafts", "drafter"), [(0, Counting()), (4, None)])
def test_a_drafter_and_a_limit_of_drafts_come_together(max_drafts: int, drafter: Counting | None) -> None:
    with pytest.raises(InvalidConfig, match=f"max_drafts is {max_drafts}, with"):
        Scheduler(replace(LIMITS, max_drafts=max_drafts), Fcfs(), drafter=drafter)
