"""The frame of a chart: title, legend, labelled axes, marks; and several charts as one picture.

Always: charts are equally wide and need no other file. Knows nothing of what is drawn inside.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chairlift.lab.report.axis import Axis, labels
from chairlift.lab.report.markup import Markup, joined, tag
from chairlift.lab.report.style import CHARTS

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 542, 54, 216  # of the area inside the axes
CHARACTER = 6.6  # pixels, about
_LINE, _GAP = 15, 10


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    inside: Markup
    height: int = HEIGHT

    def to_svg(self, **position: float) -> Markup:
        title = tag("text", self.title, class_="title", x=LEFT, y=17)
        return _svg(self.title, WIDTH, self.height, title, self.inside, **position)


def picture(title: str, charts: Sequence[Chart]) -> str:
    """An SVG file: the charts in two columns."""
    num_wide, y = min(2, len(charts)), 30
    inside = []
    for first in range(0, len(charts), num_wide):
        row = charts[first : first + num_wide]
        for i, chart in enumerate(row):
            inside.append(chart.to_svg(x=(WIDTH + _GAP) * i, y=y, width=WIDTH, height=chart.height))
        y += max(chart.height for chart in row) + _GAP
    width = (WIDTH + _GAP) * num_wide - _GAP
    style, back = tag("style", Markup(CHARTS)), tag("rect", class_="back", width=width, height=y)
    head = tag("text", title, class_="title", x=width / 2, y=20, text_anchor="middle")
    namespace = "http://www.w3.org/2000/svg"
    return _svg(title, width, y, style, back, head, *inside, xmlns=namespace, width=width, height=y) + "\n"


class LegendEntry(NamedTuple):
    """A name in the legend under the title."""

    name: str
    classes: str
    glyph: str = "■"


def framed(
    title: str, x: Axis, y: Axis, across: str, inside: Sequence[str], keys: Sequence[LegendEntry] = (), note: str = "",
    ticks: Sequence[float] = (),
) -> Chart:  # fmt: skip
    """A chart with two axes; `across` names the lower one, `ticks` replace its labels."""
    grid = []
    levels = list(y.ticks())
    for level, text in zip(levels, labels(levels), strict=True):
        grid.append(tag("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y.at(level), y2=y.at(level)))
        grid.append(tag("text", text, x=LEFT - 7, y=y.at(level) + 4, text_anchor="end"))
    axis = tag("line", class_="axis", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM)
    name = tag("text", across, x=RIGHT, y=HEIGHT - 4, text_anchor="end")
    about = tag("text", note, x=LEFT, y=33)
    return Chart(title, joined(*grid, *inside, axis, *tick_labels(x, BOTTOM, ticks), name, *legend_lines(keys), about))


def empty(title: str) -> Chart:
    return Chart(title, tag("text", "nothing was measured", x=WIDTH / 2, y=HEIGHT / 2, text_anchor="middle"))


def tick_labels(x: Axis, bottom: float, ticks: Sequence[float] = ()) -> Iterator[Markup]:
    """Labels under the axis, as many as fit."""
    free, ticks = -math.inf, ticks or list(x.ticks())
    for tick, text in zip(ticks, labels(ticks), strict=True):
        half = CHARACTER * len(text) / 2
        if x.at(tick) - half > free:
            yield tag("text", text, x=x.at(tick), y=bottom + 15, text_anchor="middle")
            free = x.at(tick) + half


def mark_lines(marks: Mapping[str, float], x: Axis, top: float) -> Iterator[Markup]:
    """A vertical line for each, named at its top where the name fits."""
    last = -math.inf
    for name, value in marks.items():
        at = x.at(value)
        yield tag("line", class_="mark", x1=at, x2=at, y1=top, y2=BOTTOM)
        if at - last > 22:
            yield tag("text", name, class_="mark", x=at, y=top - 3, text_anchor="middle")
            last = at


def top_under(keys: Sequence[LegendEntry]) -> int:
    return TOP + _LINE * (len(_wrapped(keys)) - 1)


def legend_lines(keys: Sequence[LegendEntry]) -> Iterator[Markup]:
    for i, line in enumerate(_wrapped(keys)):
        words = (joined(tag("tspan", key.glyph, class_=key.classes), f" {key.name}   ") for key in line)
        yield tag("text", *words, x=LEFT, y=33 + _LINE * i)


def _wrapped(keys: Sequence[LegendEntry]) -> list[list[LegendEntry]]:
    lines: list[list[LegendEntry]] = []
    used = math.inf
    for key in keys:
        width = CHARACTER * (len(key.name) + 5)
        if used + width > WIDTH - LEFT:
            lines.append([])
            used = 0.0
        lines[-1].append(key)
        used += width
    return lines


def _svg(title: str, across: float, down: float, *inside: str, **attributes: str | float) -> Markup:
    return tag("svg", *inside, viewBox=f"0 0 {across:g} {down:g}", role="img", aria_label=title, **attributes)
