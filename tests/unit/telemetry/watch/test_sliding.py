import pytest

from chairlift.telemetry.watch.sliding import Sliding


def test_percentiles_are_right_to_a_few_percent() -> None:
    sliding = Sliding(3)
    for value in range(1, 1001):
        sliding.add(value / 1000)
    sliding.turn()
    assert sliding.percentiles() == pytest.approx((0.5, 0.9, 0.99), rel=0.02)


def test_a_value_counts_as_often_as_it_is_said() -> None:
    sliding = Sliding(3)
    sliding.add(1.0, 98)
    sliding.add(10.0, 2)
    sliding.turn()
    p50, p90, p99 = sliding.percentiles() or ()
    assert (p50, p90) == pytest.approx((1.0, 1.0), rel=0.02)
    assert p99 == pytest.approx(10.0, rel=0.02)


def test_what_is_older_than_the_window_is_gone() -> None:
    sliding = Sliding(2)
    sliding.add(5.0)
    sliding.turn()
    for _ in range(1):
        sliding.add(0.0)
        sliding.turn()
    assert (sliding.percentiles() or ())[2] == pytest.approx(5.0, rel=0.02)
    sliding.turn()
    sliding.turn()
    assert sliding.percentiles() is None
