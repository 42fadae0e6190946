from chairlift.config.settings import Settings
from chairlift.core.attributes import Attributes
from chairlift.lab.tune.knobs import changes, default_choice, knobs_of, shown, valid, with_choice
from chairlift.lab.workload.item import Item
from fakes.tuned import KNOBS, PROFILE, items

SETTINGS = Settings()


def test_the_default_choice_is_what_the_settings_do_by_themselves() -> None:
    choice = default_choice(knobs_of(SETTINGS, PROFILE, items()))
    assert PROFILE.limits(with_choice(SETTINGS, choice)) == PROFILE.limits(SETTINGS)
    assert choice["policy"] == "fcfs"


def test_every_default_is_one_of_the_values() -> None:
    given = Settings(policy="priority", max_running=7, max_step_tokens=50, max_step_prompts=3, block_size=4)
    for knob in knobs_of(given, PROFILE, items()):
        assert knob.default in knob.values


def test_what_the_user_has_set_is_no_knob() -> None:
    names = [knob.name for knob in knobs_of(SETTINGS, PROFILE, items(), fixed=("policy", "block_size"))]
    assert "policy" not in names and "block_size" not in names and "admission" in names


def test_there_are_no_more_run_at_once_than_requests_need() -> None:
    few = next(knob for knob in knobs_of(SETTINGS, PROFILE, items(5)) if knob.name == "max_running")
    many = next(knob for knob in knobs_of(SETTINGS, PROFILE, items(500)) if knob.name == "max_running")
    assert max(few.values) == 16  # the default stays
    assert max(many.values) == 32


def test_rules_are_tried_where_the_workload_can_tell_them_apart() -> None:
    def policies(*more: Item) -> tuple[object, ...]:
        return knobs_of(SETTINGS, PROFILE, [*items(), *more])[0].values

    assert not {"longest-prefix", "fair-share", "priority", "deadline"} & set(policies())
    assert "longest-prefix" in policies(Item(prompt_tokens=1, output_tokens=1, hash_ids=(1,)))
    assert "fair-share" in policies(Item(prompt_tokens=1, output_tokens=1, attributes=Attributes(user="a")))
    assert "priority" in policies(Item(prompt_tokens=1, output_tokens=1, attributes=Attributes(priority=1)))
    assert "deadline" in policies(Item(prompt_tokens=1, output_tokens=1, attributes=Attributes(deadline_s=1.0)))


def test_a_step_has_room_for_all_that_run() -> None:
    knobs = knobs_of(SETTINGS, PROFILE, items(500))
    choice = valid({**default_choice(knobs), "max_running": 32, "max_step_tokens": 4}, knobs, SETTINGS)
    assert choice["max_step_tokens"] == 32


def test_a_choice_is_shown_by_what_it_changes() -> None:
    choice = {**default_choice(KNOBS), "max_running": 8, "policy": "longest-first"}
    assert shown(changes(choice, KNOBS)) == "--policy longest-first --max-running 8"
    assert shown(changes(default_choice(KNOBS), KNOBS)) == "the defaults"


def test_neighbours_of_a_number_are_the_next_ones() -> None:
    policy, running, _, _ = KNOBS
    assert running.near(2) == (4,)
    assert running.near(8) == (4, 16)
    assert policy.near("fcfs") == ("longest-first", "shortest-first")
