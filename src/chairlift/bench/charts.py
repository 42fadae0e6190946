"""Charts as SVG inside a page: histograms, levels over time, and points. Colours are the page's (classes a to c)."""

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from chairlift.bench.axis import Axis, shown

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 18, 54, 34
NUM_BINS = 56
MAX_POINTS = 4000
_LONG_TAIL = 20.0  # times the median: beyond it an even axis shows one bar
CLASSES = "abc"


def histogram(title: str, values: Sequence[float], marks: Mapping[str, float], unit: str) -> str:
    """How many values fall into each of even steps; `marks` are lines with names."""
    ordered = sorted(values)
    if not ordered:
        return _empty(title)
    low, high, middle = ordered[0], ordered[-1], ordered[len(ordered) // 2]
    is_log = high > _LONG_TAIL * middle > 0.0
    floor = max(low, middle / 1000.0) if is_log else 0.0 if low < 0.5 * high else low
    x = Axis.over(floor, high, LEFT, WIDTH - RIGHT, is_log)
    counts = [0] * NUM_BINS
    for value in ordered:
        counts[min(NUM_BINS - 1, max(0, int(x.share(value) * NUM_BINS)))] += 1
    y = Axis.over(0.0, max(counts), HEIGHT - BOTTOM, TOP)
    bars = []
    for place, count in enumerate(counts):
        if count:
            start, end = x.value(place / NUM_BINS), x.value((place + 1) / NUM_BINS)
            note = f"{shown(start)} to {shown(end)} {unit}: {count:,}"
            bars.append(
                f'<rect class="a fill" x="{x.at(start):.1f}" y="{y.at(count):.1f}" '
                f'width="{max(0.8, x.at(end) - x.at(start) - 0.7):.1f}" height="{y.start - y.at(count):.1f}">'
                f"<title>{html.escape(note)}</title></rect>"
            )
    lines = "".join(_mark_lines(marks, x))
    scale = f"{unit}, logarithmic" if is_log else unit
    return _frame(title, x, y, scale, "".join(bars) + lines, note=_notes(marks, unit))


def _mark_lines(marks: Mapping[str, float], x: Axis) -> Iterator[str]:
    """A line through the chart for each, named at its top where there is room."""
    last = -math.inf
    for name, value in marks.items():
        at = x.at(value)
        yield f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        if at - last > 22:
            yield f'<text class="mark" x="{at:.1f}" y="{TOP - 3}" text-anchor="middle">{html.escape(name)}</text>'
            last = at


def _notes(marks: Mapping[str, float], unit: str) -> str:
    return html.escape("   ".join(f"{name} {shown(value)} {unit}" for name, value in marks.items()))


def levels(title: str, step: float, series: Mapping[str, Sequence[float]], unit: str) -> str:
    """Levels over time on top of each other, each from the top of the one before."""
    num = max((len(values) for values in series.values()), default=0)
    if num == 0:
        return _empty(title)
    x = Axis.over(0.0, num * step, LEFT, WIDTH - RIGHT)
    sums = [0.0] * num
    layers = []
    for values in series.values():
        below = sums
        sums = [low + value for low, value in zip(below, values, strict=True)]
        layers.append((below, sums))
    y = Axis.over(0.0, max(sums) * 1.05, HEIGHT - BOTTOM, TOP)
    areas = "".join(
        f'<path class="{CLASSES[place]} area" d="{_area(x, y, step, below, above)}"/>'
        for place, (below, above) in enumerate(layers)
    )
    return _frame(title, x, y, f"seconds; {unit}", areas, list(series) if len(series) > 1 else [])


def _area(x: Axis, y: Axis, step: float, below: Sequence[float], above: Sequence[float]) -> str:
    """Along the upper edge and back along the lower one."""
    there = _steps(x, y, step, above)
    back = _steps(x, y, step, below)
    return "M" + "L".join([*there, *reversed(back)]) + "Z"


def _steps(x: Axis, y: Axis, step: float, values: Sequence[float]) -> list[str]:
    points = []
    for place, value in enumerate(values):
        height = f"{y.at(value):.1f}"
        points += [f"{x.at(place * step):.1f} {height}", f"{x.at((place + 1) * step):.1f} {height}"]
    return points


def points(title: str, series: Mapping[str, Sequence[tuple[float, float]]], across: str) -> str:
    """A dot for each pair; of very many, evenly chosen ones."""
    everything = [pair for pairs in series.values() for pair in pairs]
    if not everything:
        return _empty(title)
    x = Axis.over(0.0, max(first for first, _ in everything), LEFT, WIDTH - RIGHT)
    y = Axis.over(0.0, max(second for _, second in everything) * 1.05, HEIGHT - BOTTOM, TOP)
    dots = "".join(
        f'<path class="{CLASSES[place]} dots" d="{"".join(_dots(x, y, pairs))}"/>'
        for place, pairs in enumerate(series.values())
    )
    return _frame(title, x, y, across, dots, list(series))


def _dots(x: Axis, y: Axis, pairs: Sequence[tuple[float, float]]) -> Iterable[str]:
    every = -(-len(pairs) // MAX_POINTS)
    return (f"M{x.at(first):.1f} {y.at(second):.1f}h0" for first, second in pairs[::every])


def _frame(title: str, x: Axis, y: Axis, across: str, inside: str, names: Sequence[str] = (), note: str = "") -> str:
    grid = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(tick):.1f}" y2="{y.at(tick):.1f}"/>'
        f'<text x="{LEFT - 7}" y="{y.at(tick) + 4:.1f}" text-anchor="end">{shown(tick)}</text>'
        for tick in y.ticks()
    ]
    ticks = [
        f'<text x="{x.at(tick):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{shown(tick)}</text>'
        for tick in x.ticks()
    ]
    keys = [
        f'<tspan class="{CLASSES[place]} key" dx="{12 if place else 0}">&#9632;</tspan> {html.escape(name)}'
        for place, name in enumerate(names)
    ]
    return _svg(
        title,
        f"{''.join(grid)}{inside}"
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
        f'{"".join(ticks)}<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{html.escape(across)}</text>'
        f'<text x="{LEFT}" y="33">{"".join(keys)}{note}</text>',
    )


def _empty(title: str) -> str:
    return _svg(title, f'<text x="{WIDTH / 2}" y="{HEIGHT / 2}" text-anchor="middle">nothing was measured</text>')


def _svg(title: str, inside: str) -> str:
    name = html.escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">'
        f'<text class="title" x="{LEFT}" y="17">{name}</text>{inside}</svg>'
    )
