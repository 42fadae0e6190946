from dataclasses import replace

import pytest

from chairlift.core.events import Admitted, Finished, Forked, Preempted, PromptScored, Shrunk, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import FinishReason
from chairlift.core.scheduling.scheduler import Scheduler
from fakes.requests import make_request, make_samples, make_search
from fakes.worlds.faults import failing, full
from fakes.worlds.world import World

ROOMY = Limits(
    vocab_size=50, max_model_len=64, block_size=4, num_blocks=64, max_running=8, max_step_tokens=16, max_step_prompts=0
)


def run(limits: Limits = ROOMY, *groups: tuple, depth: int = 1, **more: object) -> World:  # type: ignore[type-arg]
    return World(limits, depth=depth, arrivals={0: list(groups)}, **more).run()  # type: ignore[arg-type]


def shapes(world: World) -> list[list[tuple[int, int, int]]]:
    return [[(c.request.id, c.start, c.count) for c in plan.chunks] for plan in world.runner.plans]


def test_a_long_prompt_is_cut_to_the_budget_and_decodes_go_first() -> None:
    world = run(ROOMY, (make_request(1, range(2), 3),), (make_request(2, range(10, 40), 2),))
    assert shapes(world) == [
        [(1, 0, 2), (2, 0, 14)],
        [(1, 2, 1), (2, 14, 15)],
        [(1, 3, 1), (2, 29, 1)],
        [(2, 30, 1)],
    ]


def test_only_so_many_prompts_enter_a_step() -> None:
    limits = replace(ROOMY, max_step_prompts=1)
    world = run(limits, (make_request(1, range(2), 1),), (make_request(2, range(5, 7), 1),))
    assert shapes(world) == [[(1, 0, 2)], [(2, 0, 2)]]


def test_no_more_requests_run_than_allowed() -> None:
    limits = replace(ROOMY, max_running=2)
    world = run(limits, *[(make_request(i, [i], 2),) for i in range(1, 5)])
    assert [len(chunks) for chunks in shapes(world)] == [2, 2, 2, 2]


def test_the_newest_request_is_preempted_when_blocks_run_out_and_keeps_its_output() -> None:
    limits = replace(ROOMY, num_blocks=4, max_model_len=16)
    world = run(limits, (make_request(1, range(4), 8),), (make_request(2, range(20, 23), 8),))
    preempted = [e for e in world.events if isinstance(e, Preempted)]
    assert [e.request for e in preempted] == [2]
    assert len(world.outputs()[RequestId(2)]) == 8


@pytest.mark.parametrize(("requeue", "place"), [("arrival", None), ("fifo", 0), ("lifo", -1)])
def test_preempted_requests_return_in_the_order_that_was_asked_for(requeue: str, place: int | None) -> None:
    limits = Limits(vocab_size=50, max_model_len=30, block_size=1, num_blocks=36, max_running=6, max_step_tokens=40)
    arrivals = {i: [(make_request(i + 1, range(3 * i, 3 * i + 4), 20 - 2 * i),)] for i in range(6)}
    world = World(
        limits, policy=Fcfs(victim="shortest"), preemption=Preemption(requeue=requeue), arrivals=arrivals
    ).run()
    preempted: list[int] = []
    num_choices = 0
    for event in world.events:
        if isinstance(event, Preempted):
            preempted.append(event.request)
        elif isinstance(event, Admitted) and event.request in preempted:
            num_choices += len(preempted) > 1
            assert event.request == (min(preempted) if place is None else preempted[place])
            preempted.remove(event.request)
    assert num_choices > 1


def test_a_second_request_starts_from_the_blocks_of_the_first() -> None:
    world = World(ROOMY, arrivals={0: [(make_request(1, range(10), 1),)], 3: [(make_request(2, range(10), 1),)]}).run()
    assert [e.num_cached for e in world.events if isinstance(e, Admitted)] == [0, 8]


def test_no_request_starts_from_blocks_of_a_request_that_failed() -> None:
    scheduler = Scheduler(ROOMY, Fcfs())
    for id in (1, 2):
        scheduler.add((make_request(id, range(9), 2),), float(id))
        plan = scheduler.schedule(float(id))
        assert plan is not None
        scheduler.commit(plan, StepResult(plan.step, [-1], failed={RequestId(id): "not a number"}), float(id))
    assert [e.num_cached for e in scheduler.take_events() if isinstance(e, Admitted)] == [0, 0]


def test_requests_with_different_salts_share_nothing() -> None:
    first, second = make_request(1, range(10), 1, cache_salt="a"), make_request(2, range(10), 1, cache_salt="b")
    world = World(ROOMY, arrivals={0: [(first,)], 3: [(second,)]}).run()
    assert [e.num_cached for e in world.events if isinstance(e, Admitted)] == [0, 0]


def test_samples_share_the_prompts_blocks_and_copy_only_its_tail() -> None:
    world = run(ROOMY, make_samples(1, range(10), 3, 4))
    assert [e.request for e in world.events if isinstance(e, Forked)] == [2, 3]
    assert shapes(world)[0] == [(1, 0, 10)]
    assert sum(len(plan.copies) for plan in world.runner.plans) == 2  # the last of three keeps the original
    tables = [chunk.blocks for chunk in world.runner.plans[1].chunks]
    assert len({table[:2] for table in tables}) == 1
    assert len({table[2] for table in tables}) == 3


def test_samples_of_a_prompt_in_whole_blocks_copy_nothing() -> None:
    world = run(ROOMY, make_samples(1, range(8), 2, 4))
    assert all(not plan.copies for plan in world.runner.plans)


def test_when_the_leading_sample_is_aborted_before_its_prompt_is_done_the_next_takes_over() -> None:
    world = World(ROOMY, arrivals={0: [make_samples(1, range(30), 3, 2)]}, aborts={1: [RequestId(1)]}).run()
    assert sorted(world.outputs()) == [2, 3]


def test_a_pending_fork_can_be_aborted() -> None:
    world = World(ROOMY, arrivals={0: [make_samples(1, range(30), 3, 2)]}, aborts={1: [RequestId(2)]}).run()
    assert sorted(world.outputs()) == [1, 3]


def test_samples_that_wait_for_their_prompt_hold_it_once() -> None:
    scheduler = Scheduler(ROOMY, Fcfs())
    scheduler.add(make_samples(1, range(30), 3, 8), 0.0)
    assert len({id(progress.tokens) for progress in scheduler.live.values()}) == 1


def test_the_next_step_is_planned_before_the_tokens_of_the_last_are_known() -> None:
    world = run(ROOMY, (make_request(1, range(3), 4),), depth=2)
    chunk = world.runner.plans[1].chunks[0]
    assert (chunk.start, chunk.count, chunk.num_tokens) == (3, 1, 3)


def test_a_request_that_stops_early_leaves_no_trace_of_the_step_planned_too_far() -> None:
    alone = run(ROOMY, (make_request(1, range(3), 8),)).outputs()[RequestId(1)]
    stop = make_request(1, range(3), 8, stop_ids=frozenset([alone[2]]))
    world = run(ROOMY, (stop,), depth=2)
    last = [e for e in world.events if isinstance(e, Token)][-1]
    assert (last.token, last.finish) == (alone[2], FinishReason.STOP)
    assert len(world.runner.plans) == 4  # one more than needed, without an event


def test_prompt_scores_come_once_and_whole_even_over_several_chunks() -> None:
    world = run(ROOMY, (make_request(1, range(40), 2, prompt_logprobs=0),))
    (event,) = [e for e in world.events if isinstance(e, PromptScored)]
    assert [score.token for score in event.scores] == list(range(1, 40))


def test_a_scored_prompt_is_computed_even_when_it_is_cached() -> None:
    plain, scored = make_request(1, range(10), 1), make_request(2, range(10), 1, prompt_logprobs=0)
    world = World(ROOMY, arrivals={0: [(plain,)], 3: [(scored,)]}).run()
    assert [e.num_cached for e in world.events if isinstance(e, Admitted)] == [0, 0]


def test_what_a_failed_step_was_to_move_out_is_computed_again() -> None:
    limits = Limits(vocab_size=50, max_model_len=16, block_size=2, num_blocks=8, max_running=3, max_step_tokens=12)
    arrivals = {i: [(make_request(i + 1, range(4 + i), 8),)] for i in range(4)}
    swapping = Preemption(mode="swap", num_host_blocks=20)
    calm = World(limits, arrivals=arrivals, preemption=swapping)
    calm.run()
    moves = [plan.step for plan in calm.runner.plans if plan.swap_outs]
    assert moves
    world = World(limits, faults=[failing(moves[0])], arrivals=arrivals, preemption=swapping).run()
    assert any(isinstance(e, Finished) for e in world.events)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_step_that_does_not_fit_is_made_of_smaller_ones_and_nothing_is_computed_twice(depth: int) -> None:
    sizes: list[int] = []

    def is_too_large(plan: StepPlan) -> bool:
        sizes.append(plan.num_tokens)
        return plan.num_tokens > 5

    arrivals = {0: [(make_request(i, range(i, i + 20), 6),) for i in range(1, 4)]}
    world = World(ROOMY, faults=[full(is_too_large)], arrivals=arrivals, depth=depth).run()
    assert not any(isinstance(e, Finished | Preempted) for e in world.events)
    assert next(e.max_tokens for e in world.events if isinstance(e, Shrunk)) == sizes[0] // 2
    # Every token but each request's last, once.
    assert sum(size for size in sizes if size <= 5) == 3 * (20 + 6 - 1)


def test_a_table_that_is_rolled_back_is_another_list() -> None:
    """Runners know by it what they hold of a table; they may not have got round to writing it."""
    scheduler = Scheduler(ROOMY, Fcfs())
    scheduler.add((make_request(1, range(9), 4),), 0.0)
    plan = scheduler.schedule(1.0)
    assert plan is not None
    before = scheduler.running[RequestId(1)].blocks
    scheduler.roll_back(plan, "full", 2.0)
    after = scheduler.running[RequestId(1)]
    assert after.blocks == before and after.blocks is not before and after.num_computed == 0


def test_a_single_token_that_does_not_fit_fails_its_request_alone() -> None:
    arrivals = {0: [(make_request(1, range(3), 4),)], 5: [(make_request(2, range(3), 4),)]}
    has_first = full(lambda plan: any(chunk.request.id == 1 for chunk in plan.chunks))
    world = World(ROOMY, faults=[has_first], arrivals=arrivals).run()
    (end,) = [e for e in world.events if isinstance(e, Finished)]
    assert (end.request, end.finish) == (1, FinishReason.ERROR)
    assert "does not fit" in end.message
    assert len(world.outputs()[RequestId(2)]) == 4


@pytest.mark.parametrize("depth", [1, 2])
def test_a_failed_step_fails_its_requests_and_no_others(depth: int) -> None:
    arrivals = {0: [(make_request(1, range(3), 4),)], 5: [(make_request(2, range(3), 4),)]}
    world = World(ROOMY, faults=[failing(2)], arrivals=arrivals, depth=depth).run()
    assert [(e.request, e.finish) for e in world.events if isinstance(e, Finished)] == [(1, FinishReason.ERROR)]
    assert len(world.outputs()[RequestId(2)]) == 4


def test_a_waiting_request_past_its_timeout_ends_before_it_costs_anything() -> None:
    limits = replace(ROOMY, max_running=1)
    world = run(limits, (make_request(1, range(2), 6),), (make_request(2, range(10, 30), 4, timeout_s=3.0),))
    [end] = [e for e in world.events if isinstance(e, Finished)]
    assert (end.request, end.finish) == (2, FinishReason.TIMEOUT)
    assert [chunk for plan in shapes(world) for chunk in plan if chunk[0] == 2] == []


@pytest.mark.parametrize("depth", [1, 2])
def test_a_running_request_past_its_timeout_stops_and_frees_its_blocks(depth: int) -> None:
    world = run(ROOMY, (make_request(1, range(2), 30, timeout_s=12.0),), depth=depth)
    assert [e.finish for e in world.events if isinstance(e, Finished)] == [FinishReason.TIMEOUT]
    assert 2 < len(world.outputs()[RequestId(1)]) < 30


def test_a_request_that_is_done_in_time_hears_nothing_of_its_timeout() -> None:
    world = World(
        ROOMY, arrivals={0: [(make_request(1, [1], 2, timeout_s=9.0),)], 20: [(make_request(2, [1], 2),)]}
    ).run()
    assert not [e for e in world.events if isinstance(e, Finished)]


def test_every_sample_and_the_whole_search_end_when_their_time_is_over() -> None:
    limits = replace(ROOMY, max_step_tokens=8)
    searching = make_search(4, range(30, 40), 2, 4, timeout_s=2.0)
    world = run(limits, make_samples(1, range(30), 3, 2, timeout_s=2.0), searching)
    ends = sorted((e.request, e.finish) for e in world.events if isinstance(e, Finished))
    assert ends == [(id, FinishReason.TIMEOUT) for id in (1, 2, 3, 4, 5)]
