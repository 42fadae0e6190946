"""Where states are kept for other requests to go on from, and how long."""

from dataclasses import replace

from chairlift.core.events import Admitted
from chairlift.core.limits import Limits
from chairlift.core.memory.pages import Group
from fakes.requests import make_request
from fakes.worlds.world import World

NEVER = 1 << 20
STATES = Limits(
    vocab_size=50, max_model_len=64, block_size=4, num_blocks=64, max_running=2, max_step_tokens=16,
    groups=(Group("fixed", 2, NEVER, 1),),
)  # fmt: skip
PROMPT = range(30)


def ran(*prompts: list[int], limits: Limits = STATES, num_output: int = 1) -> World:
    """One after the other."""
    arrivals = {20 * i: [(make_request(i + 1, prompt, num_output),)] for i, prompt in enumerate(prompts)}
    return World(limits, arrivals=arrivals).run()


def positions(world: World) -> list[int]:
    return [checkpoint.position for plan in world.runner.plans for checkpoint in plan.checkpoints]


def found(world: World) -> list[tuple[int, int]]:
    return [(event.num_cached, event.num_missed) for event in world.events if isinstance(event, Admitted)]


def every(count: int) -> Limits:
    return replace(STATES, groups=(Group("fixed", 2, count, 1),))


def test_a_prompt_leaves_one_before_its_last_whole_tile() -> None:
    assert positions(ran([*PROMPT])) == [24]
    assert positions(ran([*range(32)])) == [28]
    assert positions(ran([*range(7)])) == []


def test_the_next_turn_goes_on_from_it_though_its_template_changed_the_end_of_the_prompt() -> None:
    world = ran([*PROMPT], [*range(27), 49, 48, 47, *range(20)])
    assert found(world) == [(0, 0), (24, 0)]


def test_others_are_taken_at_fixed_places_of_a_text_wherever_its_chunks_end_and_while_it_decodes() -> None:
    assert positions(ran([*PROMPT], limits=every(8), num_output=12)) == [8, 16, 24, 32, 40]


def test_where_a_second_text_leaves_a_first_it_takes_one_for_the_third() -> None:
    world = ran(*([*range(12), *[last] * 18] for last in (40, 41, 42)))
    assert found(world) == [(0, 0), (0, 12), (12, 0)]
    assert positions(world) == [24, 12, 24, 24]


def test_none_is_taken_of_pages_that_running_requests_may_need() -> None:
    assert positions(ran([*PROMPT], limits=replace(STATES, num_blocks=17))) == []


def test_it_is_kept_as_long_as_the_blocks_before_it() -> None:
    """Pages are overwritten in the order in which they were released: the answer's blocks first."""
    world = ran([*PROMPT], [*range(40, 48)] * 2, [*PROMPT], num_output=20, limits=replace(STATES, num_blocks=28))
    assert found(world) == [(0, 0), (0, 0), (24, 4)]


def test_blocks_that_a_text_found_and_could_not_use_wait_as_long_as_the_checkpoint_after_them() -> None:
    first, second, third = ([*range(12), *[last] * 18] for last in (40, 41, 42))
    world = ran(first, [30] * 30, second, [31] * 42, third, limits=replace(STATES, num_blocks=36))
    assert found(world)[2] == (0, 12)
    assert found(world)[4] == (12, 0)
