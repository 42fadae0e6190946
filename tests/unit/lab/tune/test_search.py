import itertools
from collections.abc import Iterator

import pytest

from chairlift.lab.tune.effects import effects, simplified
from chairlift.lab.tune.evaluate import Evaluator
from chairlift.lab.tune.goal import Goal
from chairlift.lab.tune.knobs import Choice, default_choice
from chairlift.lab.tune.search import Search
from chairlift.lab.tune.workers import Workers
from fakes.tuned import KNOBS, work

GOAL = Goal(True, False)


def every_choice() -> Iterator[Choice]:
    for values in itertools.product(*(knob.values for knob in KNOBS)):
        yield dict(zip([knob.name for knob in KNOBS], values, strict=True))


def searched(least: int = 40, num_workers: int = 1, seed: int = 0, num_items: int = 40) -> Search:
    with Workers(work(num_items), num_workers) as workers:
        search = Search(workers, KNOBS, GOAL)
        search.put(workers.evaluator.evaluate(default_choice(KNOBS)))
        search.explore(60.0, seed, least, patience=16)
        search.polish(60.0)
    return search


@pytest.mark.nightly
def test_it_finds_the_best_of_all() -> None:
    evaluator = Evaluator(work())
    truth = max(evaluator.evaluate(choice).point.throughput for choice in every_choice() if _is_valid(choice))
    search = searched()
    assert search.best is not None
    assert search.best.point.throughput >= 0.995 * truth
    assert search.best.choice["policy"] == "longest-first"
    assert search.best.choice["max_running"] == 8


def _is_valid(choice: Choice) -> bool:
    return int(choice["max_step_tokens"]) >= int(choice["max_running"])


@pytest.mark.nightly
def test_the_same_seed_tries_the_same_however_many_processes() -> None:
    tried = [[evaluation.choice for evaluation in searched(num_workers=count).evaluations] for count in (1, 2)]
    assert tried[0] == tried[1]
    assert tried[0] != [evaluation.choice for evaluation in searched(seed=1).evaluations]


@pytest.mark.nightly
def test_nothing_is_tried_twice_and_nothing_that_cannot_be() -> None:
    search = searched(least=1000, num_items=5)  # more than there are
    choices = [tuple(sorted(evaluation.choice.items())) for evaluation in search.evaluations]
    assert len(set(choices)) == len(choices) <= 72
    assert all(_is_valid(evaluation.choice) for evaluation in search.evaluations)
    assert not any(evaluation.failure for evaluation in search.evaluations)


def test_no_time_is_enough_for_the_default() -> None:
    with Workers(work(), 1) as workers:
        search = Search(workers, KNOBS, GOAL)
        search.put(workers.evaluator.evaluate(default_choice(KNOBS)))
        search.explore(0.0)
        assert len(search.evaluations) == 1
        assert search.best is not None
        assert search.is_cut


def test_a_search_that_ends_by_itself_was_not_cut() -> None:
    assert not searched(num_items=5).is_cut


def test_knobs_that_do_not_matter_are_reset() -> None:
    with Workers(work(), 1) as workers:
        search = Search(workers, KNOBS, GOAL)
        turned = {"policy": "longest-first", "max_running": 8, "max_step_tokens": 64, "admission": "peak"}
        search.run([default_choice(KNOBS), turned], is_whole=True)
        pick = simplified(search, search.evaluation(turned))
        assert pick.choice == {**turned, "admission": "prompt"}  # memory is plenty
        found = effects(search, pick)
    assert [effect.name for effect in found] == ["max_running", "policy"]
    assert all(effect.loss > 0.005 for effect in found)
    assert found == sorted(found, key=lambda effect: -effect.loss)


def test_a_loss_is_of_the_pick_and_a_gain_of_the_default() -> None:
    with Workers(work(), 1) as workers:
        search = Search(workers, KNOBS, GOAL)
        turned = {**default_choice(KNOBS), "max_running": 8}
        search.run([default_choice(KNOBS), turned], is_whole=True)
        (effect,) = effects(search, search.evaluation(turned))
        before, after = (search.evaluation(c).point.throughput for c in (default_choice(KNOBS), turned))
    assert (effect.name, effect.value, effect.default) == ("max_running", 8, 16)
    assert effect.loss == pytest.approx(1 - before / after)
    assert effect.gain == pytest.approx(after / before - 1)
    assert "ms a step" in effect.why
