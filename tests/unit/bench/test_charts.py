import xml.etree.ElementTree as xml

import pytest

from chairlift.bench.axis import Axis, shown
from chairlift.bench.charts import histogram, levels, points


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


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (1234.5, "1,234"), (0.12345, "0.123"), (12.34, "12.3")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert shown(value) == text


def test_a_histogram_counts_every_value() -> None:
    chart = histogram("times", [1.0, 1.0, 2.0, 9.0, 1000.0], {"p50": 2.0}, "ms")
    notes = [element.text or "" for element in xml.fromstring(chart).iter("title")]
    assert sum(int(note.rpartition(" ")[2]) for note in notes) == 5
    assert "logarithmic" in chart


@pytest.mark.parametrize("values", [[5.0], [0.0, 0.0], [0.0, 0.0, 7.0], [1e-9, 1.0], [3.0] * 10])
def test_a_histogram_takes_any_values(values: list[float]) -> None:
    xml.fromstring(histogram("t", values, {"p50": values[0], "p99": values[-1]}, "ms"))


def test_levels_stand_on_top_of_each_other() -> None:
    chart = xml.fromstring(levels("t", 0.5, {"a": [1, 1], "b": [0, 3]}, "x"))
    lower, upper = (element.attrib["d"] for element in chart.iter("path"))
    bottom = float(lower[1:-1].split("L")[-1].split()[1])
    tops = [float(path[1:-1].split("L")[0].split()[1]) for path in (lower, upper)]
    assert tops[0] == tops[1] < bottom  # b is 0 there
    last = [float(path[1:-1].split("L")[3].split()[1]) for path in (lower, upper)]
    assert bottom - last[1] == pytest.approx(4 * (bottom - last[0]), abs=0.5)


def test_very_many_points_are_thinned_out() -> None:
    chart = points("t", {"a": [(float(i), 1.0) for i in range(20_000)]}, "x")
    assert 3000 < chart.count("h0") <= 4000
