"""Autoscaling from loads: soon up, late down, never beyond its bounds."""

import random

import pytest

from chairlift.core.routing.scaling import Scaling


def test_more_are_wanted_once_the_load_has_been_high_for_long_enough() -> None:
    scaling = Scaling(1, 10, target=100.0, up=10.0, down=60.0)
    assert [scaling.want(450.0, 2, now) for now in (0.0, 5.0, 9.9)] == [2, 2, 2]
    assert scaling.want(450.0, 2, 10.0) == 5


def test_a_short_peak_starts_nothing_and_a_short_lull_ends_nothing() -> None:
    scaling = Scaling(1, 10, target=100.0, up=10.0, down=60.0)
    loads = [900.0 if now % 9 == 8 else 200.0 for now in range(100)]
    assert {scaling.want(load, 2, float(now)) for now, load in enumerate(loads)} == {2}
    scaling = Scaling(1, 10, target=100.0, up=10.0, down=60.0)
    loads = [500.0 if now % 50 == 0 else 10.0 for now in range(300)]
    assert {scaling.want(load, 5, float(now)) for now, load in enumerate(loads)} == {5}


def test_fewer_are_wanted_after_a_long_lull_as_many_as_the_most_it_needed() -> None:
    scaling = Scaling(1, 10, target=100.0, up=10.0, down=60.0)
    wanted = [scaling.want(250.0 if now < 30 else 10.0, 8, float(now)) for now in range(120)]
    assert wanted[59] == 8 and wanted[60] == 3 and wanted[-1] == 1


def test_a_load_near_the_target_changes_nothing() -> None:
    scaling = Scaling(1, 40, target=100.0, up=0.0, down=0.0)
    assert scaling.want(2190.0, 20, 0.0) == scaling.want(1810.0, 20, 1.0) == 20
    assert scaling.want(2210.0, 20, 2.0) == 23


def test_it_stays_within_its_bounds() -> None:
    rng = random.Random(1)
    scaling = Scaling(2, 6, target=10.0, up=1.0, down=2.0)
    count = 3
    for now in range(500):
        count = scaling.want(rng.choice([0.0, 20.0, 1e6]), count, float(now))
        assert 2 <= count <= 6


@pytest.mark.parametrize("given", [(0, 3), (4, 3)])
def test_bounds_that_are_none_are_refused(given: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="the least number"):
        Scaling(*given)
