"""Adapters in few slots: random small worlds on the ledger runner, which knows what is in each slot."""

from dataclasses import replace

import pytest

from chairlift.core.attributes import Attributes
from chairlift.core.events import Admitted
from chairlift.core.limits import Limits
from chairlift.core.plan import AdapterSlot
from fakes.requests import make_request
from fakes.worlds.draws import adapter_world, moved_world
from fakes.worlds.world import World


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(6))
def test_every_request_is_computed_with_its_adapter_and_gets_the_tokens_it_would_get_alone(block: int) -> None:
    worlds = [adapter_world(seed).run() for seed in range(block * 100, block * 100 + 100)]
    plans = [plan for world in worlds for plan in world.runner.plans if plan.loads]
    assert len(plans) > 100, "the worlds were too easy to show anything"
    waited_for = [plan for plan in plans if {*plan.loads} & {*plan.adapters} and plan.num_decoding]
    assert not waited_for, "requests that ran had to wait for an adapter of another"
    assert any(not {*plan.loads} & {*plan.adapters} for plan in plans), "none was loaded beside a step"


@pytest.mark.nightly
def test_steps_that_do_not_fit_load_their_adapters_again() -> None:
    for seed in range(150):
        adapter_world(seed, is_full=True).run()


@pytest.mark.nightly
@pytest.mark.parametrize("windows", [False, True])
def test_a_request_that_moves_has_its_adapter_there_and_in_its_old_place_where_the_move_fails(windows: bool) -> None:
    """Seed 61, and without windows: the step that was to save what moves took its slot for another, and did not fit."""
    num_moved = 0
    for seed in range(300):
        world = moved_world(seed, 0.2, adapter_world, is_full=seed % 3 > 0, windows=windows).run()
        num_moved += world.counts["moved"]
    assert num_moved > 100


def test_worlds_are_deterministic() -> None:
    for seed in range(0, 300, 7):
        one, other = (adapter_world(seed).run() for _ in range(2))
        assert one.events == other.events
        assert [plan.adapters for plan in one.runner.plans] == [plan.adapters for plan in other.runner.plans]


LIMITS = Limits(
    vocab_size=9, max_model_len=32, block_size=4, num_blocks=64, max_running=4, max_step_tokens=64, num_adapter_slots=1
)


def asked(id: int, adapter: int, max_output: int = 3):
    return (make_request(id, [1, 2, 3, 4, 5], max_output, adapter=adapter),)


def test_an_adapter_that_queues_is_not_starved_by_a_stream_for_the_one_in_the_slot() -> None:
    """Two requests of the first adapter arrive at each step, one of the other in the beginning."""
    arrivals = {step: [asked(1 + 2 * step, 7), asked(2 + 2 * step, 7)] for step in range(100)}
    arrivals[3].append(asked(1000, 8))
    world = World(LIMITS, arrivals=arrivals).run()
    admitted = [event.request for event in world.events if isinstance(event, Admitted)]
    assert admitted.index(1000) < 60, "it entered after the turn of the first"


def test_base_requests_pass_those_that_wait_for_a_slot() -> None:
    world = World(LIMITS, arrivals={0: [asked(1, 7, 20)], 1: [asked(2, 8), asked(3, 0)]}).run()
    admitted = [event.request for event in world.events if isinstance(event, Admitted)]
    assert admitted == [1, 3, 2]


def test_adapters_are_loaded_a_plan_ahead_and_few_at_a_time_while_others_run() -> None:
    limits = replace(LIMITS, num_adapter_slots=8, max_running=16)
    world = World(limits, arrivals={0: [asked(1, 0, 20)], 2: [asked(10 + each, 10 + each) for each in range(7)]}).run()
    plans = world.runner.plans
    loaded = {adapter: plan.step for plan in plans for adapter, _ in plan.loads}
    entered = {}
    for plan in plans:
        for adapter, _ in plan.adapters:
            entered.setdefault(adapter, plan.step)
    assert [len(plan.loads) for plan in plans[2:5]] == [4, 3, 0]
    assert {adapter: entered[adapter] - step for adapter, step in loaded.items()} == dict.fromkeys(range(10, 17), 1)


def test_prefixes_are_shared_under_one_adapter_alone() -> None:
    arrivals = {step: [asked(1 + step, adapter)] for step, adapter in ((0, 7), (10, 7), (20, 8), (30, 0))}
    world = World(LIMITS, arrivals=arrivals).run()
    cached = {event.request: event.num_cached for event in world.events if isinstance(event, Admitted)}
    assert cached == {1: 0, 11: 4, 21: 0, 31: 0}
    assert [plan.loads for plan in world.runner.plans if plan.loads] == [(AdapterSlot(7, 0),), (AdapterSlot(8, 0),)]


@pytest.mark.parametrize("salt", ["\0" + "7\0", "7", "\0"])
def test_no_salt_names_the_prefixes_of_an_adapter(salt: str) -> None:
    roots = {Attributes(cache_salt=salt).prefix_root, Attributes(adapter=7).prefix_root, Attributes().prefix_root}
    assert len({*roots, Attributes(adapter=7, cache_salt=salt).prefix_root}) == 4
