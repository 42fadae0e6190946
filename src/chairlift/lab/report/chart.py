"""Charts as SVG: series over numbers, levels over time, histograms and bars.

Always: a chart without values says so. Knows nothing of what is measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from chairlift.lab.report import frame
from chairlift.lab.report.axis import Axis, shown
from chairlift.lab.report.frame import Chart, LegendEntry
from chairlift.lab.report.markup import Markup, joined, tag

MAX_POINTS = 4000
_NUM_BINS = 56
_LONGEST = 40  # characters of a bar's name
_LONG_TAIL = 20.0  # times the median: beyond it an even axis shows one bar
_HUES, _SHADES = "abcdefgh", ("a bar faint", "a bar half", "a bar")
Point = tuple[float, float]


class PlotStyle(StrEnum):
    """How a series is drawn."""

    DOTS = "dots"
    LINE = "line"
    AREA = "area"
    STAR = "star"
    DIAMOND = "diamond"
    CROSS = "cross"


_GLYPHS = {PlotStyle.DOTS: "●", PlotStyle.STAR: "★", PlotStyle.DIAMOND: "◆", PlotStyle.CROSS: "✕"}
# The path drawn at each point.
_SHAPES = {
    PlotStyle.DOTS: "h0",
    PlotStyle.STAR: "m0 -8l2 5.2 5.6 .3 -4.4 3.5 1.5 5.4 -4.7 -3.1 -4.7 3.1 1.5 -5.4 -4.4 -3.5 5.6 -.3z",
    PlotStyle.DIAMOND: "m0 -6l6 6 -6 6 -6 -6z",
    PlotStyle.CROSS: "m-4 -4l8 8m0 -8l-8 8",
}


@dataclass(frozen=True, slots=True)
class PlotSeries:
    points: Sequence[Point]
    name: str = ""  # in the legend; empty: not listed
    kind: PlotStyle = PlotStyle.DOTS
    hue: int = 0
    look: str = ""  # dotted, dashed; large

    @property
    def key(self) -> LegendEntry:
        return LegendEntry(self.name, "" if self.kind is PlotStyle.CROSS else self._hue, _GLYPHS.get(self.kind, "■"))

    def drawn(self, x: Axis, y: Axis) -> Markup:
        return tag("path", class_=f"{self._hue} {self.kind} {self.look}".rstrip(), d=self._path(x, y))

    @property
    def _hue(self) -> str:
        return _HUES[self.hue % len(_HUES)]

    def _path(self, x: Axis, y: Axis) -> str:
        points = [f"{x.at(first):.1f} {y.at(second):.1f}" for first, second in self.points]
        if self.kind in _SHAPES:
            every = max(1, -(-len(points) // MAX_POINTS))
            return "".join(f"M{point}{_SHAPES[self.kind]}" for point in points[::every])
        return f"M{'L'.join(points)}{'Z' * (self.kind is PlotStyle.AREA)}"


def plot(
    title: str, series: Sequence[PlotSeries], across: str, *, from_zero: str = "xy", is_log: bool = False,
    ticks: Sequence[float] = (), marks: Mapping[str, float] | None = None,
) -> Chart:  # fmt: skip
    """Series over numbers. `from_zero`: which axes begin there; `is_log`, `ticks`: of the lower axis; `marks`: upright
    lines with names."""
    series, marks = [each for each in series if each.points], marks or {}
    points = [point for each in series for point in each.points]
    if not points:
        return frame.empty(title)
    keys = [each.key for each in series if each.name]
    top = frame.top_under(keys)
    x = _fitted([*(x for x, _ in points), *marks.values()], "x" in from_zero, frame.LEFT, frame.RIGHT, is_log)
    y = _fitted([y for _, y in points], "y" in from_zero, frame.BOTTOM, top).widened(0.0, 0.05)
    inside = [*(each.drawn(x, y) for each in series), *frame.mark_lines(marks, x, top)]
    return frame.framed(title, x, y, f"{across}{', logarithmic' * is_log}", inside, keys, ticks=ticks)


def _fitted(values: Sequence[float], from_zero: bool, start: float, end: float, is_log: bool = False) -> Axis:
    axis = Axis.over(0.0 if from_zero else min(values), max(values), start, end, is_log)
    return axis if from_zero else axis.widened(0.04, 0.04)


def levels(title: str, step: float, heights: Mapping[str, Sequence[float]], unit: str) -> Chart:
    """Levels over time, stacked."""
    below = [0.0] * max((len(values) for values in heights.values()), default=0)
    layers = []
    for hue, (name, values) in enumerate(heights.items()):
        above = [low + value for low, value in zip(below, values, strict=True)]
        outline = [*_stairs(step, above), *reversed(_stairs(step, below))]
        layers.append(PlotSeries(outline, name * (len(heights) > 1), PlotStyle.AREA, hue))
        below = above
    return plot(title, layers, f"seconds; {unit}")


def _stairs(step: float, values: Sequence[float]) -> list[Point]:
    return [((index + end) * step, value) for index, value in enumerate(values) for end in (0, 1)]


def histogram(title: str, values: Sequence[float], marks: Mapping[str, float], unit: str) -> Chart:
    """Counts of values in even bins."""
    ordered = sorted(values)
    if not ordered:
        return frame.empty(title)
    low, high, middle = ordered[0], ordered[-1], ordered[len(ordered) // 2]
    is_log = high > _LONG_TAIL * middle > 0.0
    floor = max(low, middle / 1000.0) if is_log else 0.0 if low < 0.5 * high else low
    x = Axis.over(floor, high, frame.LEFT, frame.RIGHT, is_log)
    counts = [0] * _NUM_BINS
    for value in ordered:
        counts[min(_NUM_BINS - 1, max(0, int(x.share(value) * _NUM_BINS)))] += 1
    y = Axis.over(0.0, max(counts), frame.BOTTOM, frame.TOP)
    inside = []
    for index, count in enumerate(counts):
        start, end = x.value(index / _NUM_BINS), x.value((index + 1) / _NUM_BINS)
        note = f"{shown(start)} to {shown(end)} {unit}: {count:,}"
        width = max(0.8, x.at(end) - x.at(start) - 0.7)
        inside += [_bar(note, x.at(start), y.at(count), width, y.start - y.at(count))] if count else []
    note = "   ".join(f"{name} {shown(value)} {unit}" for name, value in marks.items())
    across = f"{unit}{', logarithmic' * is_log}"
    return frame.framed(title, x, y, across, [*inside, *frame.mark_lines(marks, x, frame.TOP)], note=note)


def bars(title: str, names: Sequence[str], values: Mapping[str, Sequence[float]], unit: str = "") -> Chart:
    """A horizontal bar for each name and each of `values`, at most three; a single one has its value beside it."""
    has_several = len(values) > 1
    shades = _SHADES[-len(values) :]
    keys = [LegendEntry(name, shade) for name, shade in zip(values, shades, strict=True)] if has_several else []
    thick = 9 if has_several else 16
    top, pitch = frame.top_under(keys), thick * len(values) + 8
    bottom = top + pitch * len(names)
    longest = min(_LONGEST, max(map(len, names)))
    left = max(frame.LEFT, 14 + frame.CHARACTER * longest)
    most = max(max(each) for each in values.values())
    x = Axis.over(0.0, most * (1.0 if has_several else 1.15), left, frame.RIGHT)
    inside = [tag("line", class_="grid", x1=x.at(tick), x2=x.at(tick), y1=top, y2=bottom) for tick in x.ticks()]
    for row, name in enumerate(names):
        y = top + pitch * row + 4
        short = name if len(name) <= longest else f"{name[: longest - 1]}…"
        inside.append(tag("text", short, x=left - 7, y=y + pitch / 2, text_anchor="end"))
        for i, (share, each) in enumerate(values.items()):
            text = f"{shown(each[row])}{unit}"
            note = f"{name}{f', {share}' * has_several}: {text}"
            inside.append(_bar(note, left, y + thick * i, x.at(each[row]) - left, thick - 1, shades[i]))
            inside += [] if has_several else [tag("text", text, x=x.at(each[row]) + 4, y=y + 12)]
    axis = tag("line", class_="axis", x1=left, x2=left, y1=top, y2=bottom)
    return Chart(title, joined(*inside, axis, *frame.tick_labels(x, bottom), *frame.legend_lines(keys)), bottom + 24)


def _bar(note: str, x: float, y: float, width: float, height: float, classes: str = "a bar") -> Markup:
    return tag("rect", tag("title", note), class_=classes, x=x, y=y, width=width, height=height)
