import xml.etree.ElementTree as xml

import pytest

from chairlift.lab.report.chart import PlotSeries, PlotStyle, bars, histogram, levels, plot
from chairlift.lab.report.frame import WIDTH, Chart, picture


def parsed(chart: Chart) -> xml.Element:
    return xml.fromstring(chart.to_svg())


def texts(chart: Chart) -> list[str]:
    return ["".join(element.itertext()) for element in parsed(chart).iter("text")]


def test_a_histogram_counts_every_value() -> None:
    chart = histogram("times", [1.0, 1.0, 2.0, 9.0, 1000.0], {"p50": 2.0}, "ms")
    notes = [element.text or "" for element in parsed(chart).iter("title")]
    assert sum(int(note.rpartition(" ")[2]) for note in notes) == 5
    assert "ms, logarithmic" in texts(chart)


@pytest.mark.parametrize("values", [[5.0], [0.0, 0.0], [0.0, 0.0, 7.0], [1e-9, 1.0], [3.0] * 10])
def test_a_histogram_takes_any_values(values: list[float]) -> None:
    assert "p50" in texts(histogram("t", values, {"p50": values[0], "p99": values[-1]}, "ms"))


def test_levels_stand_on_top_of_each_other() -> None:
    chart = parsed(levels("t", 0.5, {"a": [1, 1], "b": [0, 3]}, "x"))
    lower, upper = (element.attrib["d"] for element in chart.iter("path"))
    bottom = float(lower[1:-1].split("L")[-1].split()[1])
    tops = [float(path[1:-1].split("L")[0].split()[1]) for path in (lower, upper)]
    assert tops[0] == tops[1] < bottom  # b is 0 there
    last = [float(path[1:-1].split("L")[3].split()[1]) for path in (lower, upper)]
    assert bottom - last[1] == pytest.approx(4 * (bottom - last[0]), abs=0.5)


def test_very_many_points_are_thinned_out() -> None:
    chart = plot("t", [PlotSeries([(float(i), 1.0) for i in range(20_000)])], "x")
    assert 3000 < chart.inside.count("h0") <= 4000


@pytest.mark.parametrize("kind", PlotStyle)
def test_a_series_is_drawn_within_its_axes_and_named_in_the_key(kind: PlotStyle) -> None:
    chart = plot("t", [PlotSeries([(2.0, 5.0), (4.0, 9.0)], "a & b", kind, hue=9)], "x", from_zero="")
    (path,) = parsed(chart).iter("path")
    assert path.attrib["class"] == f"b {kind}"
    x, y = map(float, path.attrib["d"][1:].replace("m", " ").replace("h", " ").replace("L", " ").split()[:2])
    assert 0 < x < WIDTH and 0 < y < chart.height
    assert any("a & b" in text for text in texts(chart))


def test_a_key_that_is_too_long_for_a_line_is_wrapped() -> None:
    names = [f"a rather long name, number {i}" for i in range(5)]
    chart = plot("t", [PlotSeries([(1.0, 1.0)], name) for name in names], "x")
    lines = [text for text in texts(chart) if "rather" in text]
    assert len(lines) == 3
    assert "".join(lines).count("rather") == 5


def test_labels_of_an_axis_leave_room_for_each_other() -> None:
    chart = plot("t", [PlotSeries([(1.0, 1.0), (1000.0, 1.0)])], "x", ticks=(1, 2, 3, 500, 1000))
    assert [text for text in texts(chart) if text in ("1", "2", "3", "500", "1,000")][-3:] == ["1", "500", "1,000"]


def test_bars_are_as_long_as_their_values_and_say_them() -> None:
    chart = bars("t", ["a <b>", "c"], {"": [2.0, 4.0]}, " %")
    short, long = (float(element.attrib["width"]) for element in parsed(chart).iter("rect"))
    assert long == pytest.approx(2 * short, abs=0.2)
    assert {"a <b>", "c", "2 %", "4 %"} <= set(texts(chart))


def test_several_values_of_a_bar_are_told_apart_by_shade() -> None:
    chart = parsed(bars("t", ["a", "b"], {"p50": [1, 2], "p90": [2, 3], "p99": [0, 0]}))
    rects = [(rect.attrib["class"], rect.findtext("title")) for rect in chart.iter("rect")]
    assert rects[:3] == [("a bar faint", "a, p50: 1"), ("a bar half", "a, p90: 2"), ("a bar", "a, p99: 0")]
    assert len(rects) == 6


def test_a_name_that_is_too_long_is_cut_and_whole_in_the_note() -> None:
    name = "n" * 200
    chart = bars("t", [name], {"": [1.0]})
    assert not any(name in text for text in texts(chart))
    assert f"{name}: 1" in chart.inside


def test_a_picture_holds_its_charts_and_its_style() -> None:
    charts = [bars(f"chart {i}", ["a"], {"": [float(i)]}) for i in range(3)]
    whole = xml.fromstring(picture("a <title>", charts))
    name = "{http://www.w3.org/2000/svg}"
    assert [chart.attrib["aria-label"] for chart in whole.iter(f"{name}svg")] == [
        "a <title>", "chart 0", "chart 1", "chart 2",
    ]  # fmt: skip
    assert "prefers-color-scheme: dark" in (whole.findtext(f"{name}style") or "")
    bottom = max(float(chart.attrib["y"]) + float(chart.attrib["height"]) for chart in whole.findall(f"{name}svg"))
    assert bottom <= float(whole.attrib["height"])


def test_a_chart_of_nothing_says_so() -> None:
    for chart in (plot("t", [PlotSeries([])], "x"), levels("t", 1.0, {"a": []}, "x"), histogram("t", [], {}, "ms")):
        assert texts(chart) == ["t", "nothing was measured"]
