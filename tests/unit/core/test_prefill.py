"""Which prompts each prefill rule lets into a step."""

from dataclasses import replace
from typing import Any

import pytest

from chairlift.core.events import Admitted, Preempted, Token
from chairlift.core.limits import Limits
from chairlift.core.policy import Allowance, Prefill, StepView
from chairlift.core.prefill import (
    BatchedPrefill,
    DecodeFirst,
    Delay,
    Mixed,
    PrefillFirst,
    Static,
    Timed,
    WaitAfterPreempt,
)
from fakes.requests import make_request
from fakes.worlds.world import World

LIMITS = Limits(vocab_size=50, max_model_len=64, block_size=4, num_blocks=128, max_running=4, max_step_tokens=32)


def step(**more: Any) -> StepView:
    nothing = StepView(
        now=10.0,
        num_waiting=0,
        oldest_arrival=10.0,
        num_preempted=0,
        num_admitted=0,
        num_decodes=0,
        num_prompts=0,
        num_admissible=4,
        last_prompt_s=0.0,
        has_preempted=False,
    )
    return nothing._replace(**more)


def run(prefill: Prefill, *groups: tuple[int, int, int], limits: Limits = LIMITS) -> World:
    """Requests of (step, prompt length, output length)."""
    world = World(limits, prefill=prefill)
    for i, (step, prompt, output) in enumerate(groups, start=1):
        world.arrivals.setdefault(step, []).append((make_request(i, range(i, i + prompt), output),))
    return world.run()


def shapes(world: World) -> list[list[tuple[int, int]]]:
    return [[(chunk.request.id, chunk.count) for chunk in plan.chunks] for plan in world.runner.plans]


def test_mixed_computes_prompts_beside_decodes() -> None:
    assert shapes(run(Mixed(), (0, 3, 3), (1, 5, 1)))[1] == [(1, 1), (2, 5)]


def test_prefill_first_lets_decodes_wait_for_prompts() -> None:
    assert shapes(run(PrefillFirst(), (0, 3, 3), (1, 40, 2))) == [
        [(1, 3)],
        [(2, 32)],
        [(2, 8)],
        [(1, 1), (2, 1)],
        [(1, 1)],
    ]


def test_prefill_first_goes_on_decoding_when_memory_admits_none() -> None:
    world = run(PrefillFirst(), (0, 30, 6), (1, 30, 2), limits=replace(LIMITS, num_blocks=10, max_model_len=40))
    assert shapes(world)[1] == [(1, 1)]


def test_decode_first_admits_none_until_enough_of_the_running_set_is_free() -> None:
    rule = DecodeFirst(free=0.5)
    assert rule.allow(step(num_admissible=1, num_decodes=3, num_waiting=9)).num_new == 0
    assert rule.allow(step(num_admissible=2, num_decodes=2, num_waiting=9)).num_new == 2
    assert rule.allow(step(num_admissible=1, num_decodes=3, num_waiting=9, num_preempted=1)).num_new == 1
    assert rule.allow(step(num_admissible=1, num_prompts=3)).num_new == 1  # none decodes


def test_delay_holds_prompts_until_the_oldest_has_waited_its_part_of_the_last_prompt_step() -> None:
    rule = Delay(factor=0.5)
    assert rule.allow(step(oldest_arrival=9.0, last_prompt_s=4.0)).num_new == 0
    assert rule.allow(step(oldest_arrival=8.0, last_prompt_s=4.0)).num_new > 4
    assert rule.allow(step(oldest_arrival=9.0, last_prompt_s=4.0, num_preempted=2)).num_new == 2


def test_delay_lets_prompts_gather() -> None:
    # Each step takes two looks at the clock, so a prompt step takes one second and the third step after an arrival
    # is the first that is late enough.
    held, mixed = run(Delay(factor=5.0), (0, 3, 9), (2, 3, 2), (3, 3, 2)), run(Mixed(), (0, 3, 9), (2, 3, 2), (3, 3, 2))
    assert [len(step) for step in shapes(mixed)[:4]] == [1, 1, 2, 3]
    assert next(step for step in shapes(held) if len(step) > 1) == [(1, 1), (2, 3), (3, 3)]


def test_decodes_do_not_wait_for_prompts_that_may_not_enter_after_a_preemption() -> None:
    rule = WaitAfterPreempt(PrefillFirst())
    preempted = step(num_waiting=1, num_decodes=3, has_preempted=True)
    assert rule.allow(preempted) == Allowance(decodes=True, num_new=0)
    assert rule.allow(preempted._replace(num_prompts=1)) == Allowance(decodes=False, num_new=0)
    assert not rule.allow(preempted._replace(has_preempted=False)).decodes


def test_an_exclusive_delay_stops_decodes_only_while_prompts_enter() -> None:
    rule = Delay(factor=0.5, exclusive=True)
    held = step(num_waiting=1, num_decodes=3, oldest_arrival=9.0, last_prompt_s=4.0)
    assert (rule.allow(held).decodes, rule.allow(held).num_new) == (True, 0)
    assert not rule.allow(held._replace(oldest_arrival=8.0)).decodes
    assert rule.allow(held._replace(oldest_arrival=8.0, num_admissible=0)).decodes
    assert not rule.allow(held._replace(num_prompts=1)).decodes  # a prompt in several steps
    assert not rule.allow(held._replace(num_preempted=1)).decodes


def test_exclusive_steps_are_fewer_when_prompts_gather() -> None:
    def steps_by_kind(factor: float) -> tuple[int, int]:
        world = run(Delay(factor, exclusive=True), (0, 3, 9), (2, 3, 2), (3, 3, 2))
        kinds = [{count > 1 for _, count in step} for step in shapes(world)]
        assert all(len(kind) == 1 for kind in kinds)
        return kinds.count({True}), kinds.count({False})

    assert (steps_by_kind(0.0), steps_by_kind(5.0)) == ((3, 8), (2, 8))


def test_batched_prefill_waits_for_so_many() -> None:
    rule = BatchedPrefill(size=3)
    assert rule.allow(step(num_waiting=2, num_decodes=1)).num_new == 0
    assert rule.allow(step(num_waiting=5, num_admissible=2, num_decodes=2)).num_new == 0
    assert rule.allow(step(num_waiting=5, num_decodes=1)).num_new == 3


def test_a_batch_that_takes_several_steps_is_completed() -> None:
    rule = BatchedPrefill(size=3)
    assert rule.allow(step(num_waiting=3)).num_new == 3
    assert rule.allow(step(num_waiting=2, num_admitted=1, num_prompts=1, num_admissible=3)).num_new == 2
    assert rule.allow(step(num_waiting=2, num_admitted=3, num_prompts=1, num_admissible=1)).num_new == 0


def test_a_batch_is_never_larger_than_the_running_set() -> None:
    assert BatchedPrefill(size=8).allow(step(num_waiting=4, num_admissible=4)).num_new == 4


def test_prompts_are_admitted_in_batches() -> None:
    world = run(BatchedPrefill(size=2), (0, 4, 8), (0, 4, 8), (2, 4, 2), (4, 4, 2), (5, 4, 2))
    admitted = [(e.request, e.at) for e in world.events if isinstance(e, Admitted)]
    assert admitted[2][1] == admitted[3][1]
    assert admitted[4][1] > max(e.at for e in world.events if isinstance(e, Token) and e.request != 5)


def test_static_refills_only_when_the_whole_batch_is_done() -> None:
    world = run(Static(), *((0, 3, output) for output in (2, 9, 4, 3, 2, 2)))
    ends = {e.request: e.at for e in world.events if isinstance(e, Token)}
    starts = {e.request: e.at for e in world.events if isinstance(e, Admitted)}
    first, second = (1, 2, 3, 4), (5, 6)
    assert max(starts[request] for request in first) < min(ends[request] for request in first)
    assert min(starts[request] for request in second) > max(ends[request] for request in first)


def test_a_static_batch_fills_over_several_steps_before_it_decodes() -> None:
    assert shapes(run(Static(), (0, 30, 2), (0, 30, 2), (0, 30, 1), (1, 3, 2)))[:5] == [
        [(1, 30), (2, 2)],
        [(2, 28), (3, 4)],
        [(3, 26), (4, 3)],
        [(1, 1), (2, 1), (4, 1)],
    ]


def test_a_static_batch_admits_its_preempted_requests() -> None:
    limits = replace(LIMITS, num_blocks=6, max_model_len=24)
    world = run(Static(), (0, 6, 12), (0, 6, 12), (0, 3, 2), limits=limits)
    assert any(isinstance(e, Preempted) for e in world.events)
    starts = [e.request for e in world.events if isinstance(e, Admitted)]
    assert starts[-1] == 3
    assert starts.count(2) > 1


@pytest.mark.parametrize("waits", [False, True])
def test_after_preempt_wait_admits_none_in_a_step_that_preempts(waits: bool) -> None:
    limits = replace(LIMITS, num_blocks=7, max_model_len=28)
    # The second is preempted for the first and releases more than the first needs: the third could be admitted.
    world = run(WaitAfterPreempt(Mixed()) if waits else Mixed(), (0, 4, 20), (0, 16, 8), (5, 1, 2), limits=limits)
    off = [e.at for e in world.events if isinstance(e, Preempted)]
    on = [e.at for e in world.events if isinstance(e, Admitted)]
    assert off
    assert not waits or not set(off) & set(on)


def test_the_wrapped_rule_decides_in_a_step_without_preemption() -> None:
    rule = WaitAfterPreempt(PrefillFirst())
    assert not rule.allow(step(num_waiting=1)).decodes
    assert rule.allow(step(num_waiting=1)).num_new > 0
    assert rule.allow(step(num_waiting=1, has_preempted=True)).num_new == 0


@pytest.mark.parametrize("make", [lambda: DecodeFirst(2.0), lambda: Delay(-1.0), lambda: BatchedPrefill(0)])
def test_a_senseless_parameter_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="must be|must not be"):
        make()


def test_timed_allows_everything_until_times_are_known() -> None:
    assert Timed().allow(step(num_waiting=3, num_decodes=2)) == Allowance()


def test_timed_sizes_a_step_by_its_fixed_time_and_the_requests_that_wait() -> None:
    # A step takes as long by itself as 300 prompt tokens.
    known: dict[str, Any] = {"fixed_s": 0.006, "token_s": 2e-5}
    rule = Timed(share=10.0, least=512)
    assert rule.allow(step(num_decodes=8, num_waiting=1, **known)) == Allowance(num_tokens=3600, num_more=600)
    assert rule.allow(step(num_decodes=8, num_prompts=1, **known)) == Allowance(num_tokens=3000, num_more=0)
    assert rule.allow(step(num_prompts=2, num_preempted=1, **known)) == Allowance(num_more=1200)
    assert Timed(share=1.0).allow(step(num_decodes=8, **known)).num_tokens == 512


class Tight(Prefill):
    def allow(self, step: StepView) -> Allowance:
        return Allowance(num_tokens=10, num_more=4)


def test_prompts_after_the_first_enter_whole_or_not_at_all() -> None:
    assert shapes(run(Tight(), (0, 5, 1), (0, 4, 1), (0, 12, 1), (0, 3, 1))) == [
        [(1, 5), (2, 4)],
        [(3, 10)],
        [(3, 2), (4, 3)],
    ]
    assert shapes(run(Tight(), (0, 5, 1), (0, 6, 1)))[0] == [(1, 5)]


def test_a_step_without_room_for_more_is_filled() -> None:
    assert shapes(run(Tight(), (0, 8, 1), (0, 5, 1))) == [[(1, 8), (2, 2)], [(2, 3)]]


def test_cached_tokens_do_not_keep_a_prompt_out() -> None:
    arrivals = {
        0: [(make_request(1, range(20), 1),)],
        9: [(make_request(2, range(30, 35), 1),), (make_request(3, range(20), 1),)],
    }
    world = World(LIMITS, prefill=Tight(), arrivals=arrivals).run()
    assert shapes(world)[-1] == [(2, 5), (3, 4)]
