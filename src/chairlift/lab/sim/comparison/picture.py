"""A comparison as charts, one for each figure, and the page and the picture that show them.

Charts are curves over the last setting that varies if it is a number (`max-running=64,128`,
`prefill=delay:factor=0,delay:factor=0.5`), one for each combination of the others; else bars, one for each run.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from chairlift.lab.report import page
from chairlift.lab.report.chart import PlotSeries, PlotStyle, bars, plot
from chairlift.lab.report.frame import Chart, picture
from chairlift.lab.report.page import Charts, Table
from chairlift.lab.sim.comparison.compare import Column, VariantReport, cell, shown_columns, table, to_csv, to_json

_SPREADS = ("p50", "p90", "p99")
_LOOKS = ("dotted", "dashed", "")
_WIDE = 30.0  # times the smallest value: from there on the axis is logarithmic
_MOST_TICKS = 8  # of a setting's own values


def figures(rows: Sequence[VariantReport]) -> dict[str, list[Column]]:
    """Figures that differ between runs by title: one column, or the percentiles of one figure."""
    found: dict[str, list[Column]] = {}
    for column in shown_columns(rows):
        values = {cell(column, row.report) for row in rows}
        is_telling = len(values) > 1 and column.name != "requests_per_s"  # follows from the total time
        if column.name == "total_s" or _share(column) or is_telling:
            found.setdefault(re.sub(r" p\d+ ms", ", ms", column.title), []).append(column)
    return found


def axis_of(rows: Sequence[VariantReport]) -> tuple[str, list[float]] | None:
    """The last setting that varies and its value in each row, when those are numbers."""
    varied = list(rows[0].variant.varied)
    if not varied:
        return None
    texts = [row.variant.varied[varied[-1]] for row in rows]
    matches = [re.fullmatch(r"(.*?=)?(\d+(?:\.\d+)?(?:e-?\d+)?)\s*([A-Za-z]*)", text) for text in texts]
    found = [match for match in matches if match]
    if len(found) < len(rows) or len({(match[1], match[3]) for match in found}) > 1 or len(set(texts)) < 3:
        return None
    unit = f" ({found[0][3]})" if found[0][3] else ""
    name = f"{varied[-1].replace('_', '-')} {found[0][1] or ''}".strip(" =") + unit
    return name, [float(match[2]) for match in found]


def charts(rows: Sequence[VariantReport]) -> list[Chart]:
    axis = axis_of(rows)
    return [_curves(rows, *figure, *axis) if axis else _bars(rows, *figure) for figure in figures(rows).items()]


def _bars(rows: Sequence[VariantReport], title: str, columns: list[Column]) -> Chart:
    values = {_share(column): [column.value(row.report) or 0.0 for row in rows] for column in columns}
    return bars(title, [row.variant.label for row in rows], values)


def _curves(rows: Sequence[VariantReport], title: str, columns: list[Column], name: str, values: list[float]) -> Chart:
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(", ".join(list(row.variant.varied.values())[:-1]), []).append(i)
    looks = _LOOKS[-len(columns) :]
    series = []
    for hue, (group, members) in enumerate(groups.items()):
        for look, column in zip(looks, columns, strict=True):
            points = [(values[i], column.value(rows[i].report) or 0.0) for i in members]
            series.append(PlotSeries(points, "" if look else group, PlotStyle.LINE, hue, look))
            series.append(PlotSeries(points, hue=hue, look="large"))
    distinct = sorted(set(values))
    is_log = 0 < _WIDE * distinct[0] < distinct[-1]
    ticks = distinct if len(distinct) <= _MOST_TICKS else ()
    title += ": p50 dotted, p90 dashed, p99" * (len(looks) > 1)
    return plot(title, series, name, from_zero="y", is_log=is_log, ticks=ticks)


def _share(column: Column) -> str:
    return next((share for share in _SPREADS if share in column.name), "")


def to_html(rows: Sequence[VariantReport], title: str) -> str:
    titles, *lines = table(rows)
    return page.to_html(title, [Charts(charts(rows)), Table(titles, lines)])


def write(rows: Sequence[VariantReport], title: str, folder: Path) -> list[Path]:
    """The table, the picture and the page."""
    contents = {
        "compare.csv": to_csv(rows),
        "compare.json": json.dumps(to_json(rows), indent=1) + "\n",
        "compare.svg": picture(title, charts(rows)),
        "compare.html": to_html(rows, title),
    }
    return page.write_files(folder, contents)
