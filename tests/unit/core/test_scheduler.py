from dataclasses import replace

import pytest

from chairlift.core.events import Admitted, Finished, Forked, Preempted, PromptScored, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.request import FinishReason
from fakes.requests import make_request, make_samples
from fakes.world import World

ROOMY = Limits(
    vocab_size=50, max_model_len=64, block_size=4, num_blocks=64, max_running=8, max_step_tokens=16, max_step_prompts=0
)


def run(limits: Limits = ROOMY, *groups: tuple, depth: int = 1, **more: object) -> World:  # type: ignore[type-arg]
    world = World(limits, depth=depth, arrivals={0: list(groups)}, **more)  # type: ignore[arg-type]
    world.run()
    return world


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


def test_the_newest_request_steps_off_when_blocks_run_out_and_keeps_its_output() -> None:
    limits = replace(ROOMY, num_blocks=4, max_model_len=16)
    world = run(limits, (make_request(1, range(4), 8),), (make_request(2, range(20, 23), 8),))
    preempted = [e for e in world.events if isinstance(e, Preempted)]
    assert [e.request for e in preempted] == [2]
    assert len(world.outputs()[RequestId(2)]) == 8


def test_a_second_request_starts_from_the_blocks_of_the_first() -> None:
    world = World(ROOMY, arrivals={0: [(make_request(1, range(10), 1),)], 3: [(make_request(2, range(10), 1),)]})
    world.run()
    assert [e.num_cached for e in world.events if isinstance(e, Admitted)] == [0, 8]


def test_requests_with_different_salts_share_nothing() -> None:
    first, second = make_request(1, range(10), 1, cache_salt="a"), make_request(2, range(10), 1, cache_salt="b")
    world = World(ROOMY, arrivals={0: [(first,)], 3: [(second,)]})
    world.run()
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
    world = World(ROOMY, arrivals={0: [make_samples(1, range(30), 3, 2)]}, aborts={1: [RequestId(1)]})
    world.run()
    assert sorted(world.outputs()) == [2, 3]


def test_an_unborn_sample_can_be_aborted() -> None:
    world = World(ROOMY, arrivals={0: [make_samples(1, range(30), 3, 2)]}, aborts={1: [RequestId(2)]})
    world.run()
    assert sorted(world.outputs()) == [1, 3]


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
    assert len(world.runner.plans) == 4  # one more than needed, and nobody hears of it


def test_prompt_scores_come_once_and_whole_even_over_several_chunks() -> None:
    world = run(ROOMY, (make_request(1, range(40), 2, prompt_logprobs=0),))
    (event,) = [e for e in world.events if isinstance(e, PromptScored)]
    assert [score.token for score in event.scores] == list(range(1, 40))


def test_a_scored_prompt_is_computed_even_when_it_is_cached() -> None:
    plain, scored = make_request(1, range(10), 1), make_request(2, range(10), 1, prompt_logprobs=0)
    world = World(ROOMY, arrivals={0: [(plain,)], 3: [(scored,)]})
    world.run()
    assert [e.num_cached for e in world.events if isinstance(e, Admitted)] == [0, 0]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_failed_step_fails_its_requests_and_no_others(depth: int) -> None:
    world = World(
        ROOMY, depth=depth, arrivals={0: [(make_request(1, range(3), 4),)], 5: [(make_request(2, range(3), 4),)]}
    )
    world.runner.fail_steps = frozenset([2])
    world.run()
    assert [(e.request, e.finish) for e in world.events if isinstance(e, Finished)] == [(1, FinishReason.ERROR)]
    assert len(world.outputs()[RequestId(2)]) == 4
