import pytest

from chairlift.lab.report.axis import Axis, labels, round_step, shown


def test_ticks_are_round_and_within() -> None:
    assert list(Axis(0.0, 10.0, 0, 1).ticks()) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert list(Axis(3.0, 41.0, 0, 1).ticks()) == [10.0, 20.0, 30.0, 40.0]
    assert list(Axis(2.0, 200.0, 0, 1, is_log=True).ticks()) == [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]


@pytest.mark.parametrize("is_log", [False, True])
def test_shares_and_values_are_inverse(is_log: bool) -> None:
    axis = Axis(2.0, 200.0, 10, 110, is_log)
    for share in (0.0, 0.3, 1.0):
        assert axis.share(axis.value(share)) == pytest.approx(share)
        assert axis.at(axis.value(share)) == pytest.approx(10 + 100 * share)


@pytest.mark.parametrize(("least", "step"), [(0.001, 0.001), (0.0011, 0.002), (0.3, 0.5), (0.5, 0.5), (7.0, 10.0)])
def test_steps_are_round(least: float, step: float) -> None:
    assert round_step(least) == pytest.approx(step)


def test_labels_tell_close_values_apart() -> None:
    assert labels([0.0, 20.0]) == ["0", "20"]
    assert labels([125.5, 126.0, 126.5]) == ["125.5", "126", "126.5"]


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (1234.5, "1,234"), (0.12345, "0.123"), (12.34, "12.3")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert shown(value) == text
