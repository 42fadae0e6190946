"""A comparison as a picture: one small chart per figure, and a page that carries it.

Where the last setting that varies is a number (`max-running=64,128`, `prefill=delay:factor=0,delay:factor=0.5`), charts
are curves over it, one for each combination of the others; else they are bars, one for each run.
"""

import base64
import html
import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from chairlift.sim.comparison.compare import Column, Row, cell, shown_columns, to_csv, to_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SPREADS = ("p50", "p90", "p99")
_COLOURS = ("#1b5e8c", "#d1701b", "#3a8f4d", "#a23b72", "#7a6a4f", "#5b5ea6", "#8a8a8a", "#c2a20b")
_STYLES = (":", "--", "-")
_SHADES = ("#9cc3dd", "#4a90bf", "#1b5e8c")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222 }
img { max-width: 100% } table { border-collapse: collapse; font-size: 13px } code { background: #f2f2f2 }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd } td:first-child { text-align: left }
"""


class Chart(NamedTuple):
    title: str
    columns: tuple[Column, ...]  # one, or the percentiles of one figure


def charts(rows: Sequence[Row]) -> list[Chart]:
    """What is worth a chart: figures that differ between runs, percentiles of one figure together."""
    found: dict[str, list[Column]] = {}
    for column in shown_columns(rows):
        values = {cell(column, row.report) for row in rows}
        is_telling = len(values) > 1 and column.name != "requests_per_s"  # which the total time says already
        if column.name == "total_s" or _is_spread(column) or is_telling:
            found.setdefault(_group(column), []).append(column)
    return [Chart(title, tuple(columns)) for title, columns in found.items()]


def _is_spread(column: Column) -> bool:
    return any(share in column.name for share in _SPREADS)


def _group(column: Column) -> str:
    return re.sub(r" p\d+ ms", ", ms", column.title)


def axis_of(rows: Sequence[Row]) -> tuple[str, list[float]] | None:
    """The last setting that varies and its value in each row, when those are numbers."""
    varied = list(rows[0].case.varied)
    if not varied:
        return None
    texts = [row.case.varied[varied[-1]] for row in rows]
    matches = [re.fullmatch(r"(.*?=)?(\d+(?:\.\d+)?(?:e-?\d+)?)\s*([A-Za-z]*)", text) for text in texts]
    found = [match for match in matches if match]
    if len(found) < len(rows) or len({(match[1], match[3]) for match in found}) > 1 or len(set(texts)) < 3:
        return None
    unit = f" ({found[0][3]})" if found[0][3] else ""
    return f"{varied[-1].replace('_', '-')} {found[0][1] or ''}".strip(" =") + unit, [
        float(match[2]) for match in found
    ]


def to_png(rows: Sequence[Row], title: str, dpi: int = 90) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wanted, axis = charts(rows), axis_of(rows)
    num_wide = 2 if len(wanted) in (2, 4) else min(3, len(wanted))
    num_high = -(-len(wanted) // num_wide)
    height = 2.9 if axis else max(1.8, 0.9 + 0.26 * len(rows))
    figure = Figure(figsize=(4.6 * num_wide, height * num_high + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11)
    grid = figure.subplots(num_high, num_wide, squeeze=False)
    for i, place in enumerate(grid.flat):
        if i >= len(wanted):
            place.axis("off")
        elif axis:
            _curves(place, rows, wanted[i], *axis)
        else:
            _bars(place, rows, wanted[i], has_labels=i % num_wide == 0)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi)
    return _smaller(out)


def _smaller(png: io.BytesIO) -> bytes:
    """Charts need few colours."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(png).convert("RGB").quantize(64).save(out, format="png", optimize=True)
    return out.getvalue()


def _bars(place: "Axes", rows: Sequence[Row], chart: Chart, has_labels: bool) -> None:
    count = len(chart.columns)
    shades = _SHADES if count > 1 else _SHADES[-1:]
    thick = 0.8 / count
    for i, column in enumerate(chart.columns):
        at = [place_of + (i - (count - 1) / 2) * thick for place_of in range(len(rows))]
        values = [column.value(row.report) or 0.0 for row in rows]
        bars = place.barh(at, values, height=thick, color=shades[i], label=_share(column) if count > 1 else None)
        if count == 1:
            place.bar_label(bars, labels=[_short(value) for value in values], padding=2, fontsize=7)
            place.margins(x=0.15)
    labels = [row.case.label if has_labels else "" for row in rows]
    place.set_yticks(range(len(rows)), labels, fontsize=8)
    place.invert_yaxis()
    _dress(place, chart)


def _curves(place: "Axes", rows: Sequence[Row], chart: Chart, name: str, values: list[float]) -> None:
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(", ".join(list(row.case.varied.values())[:-1]), []).append(i)
    *faint, strong = zip(_STYLES[-len(chart.columns) :], chart.columns, strict=True)
    for colour, (group, members) in enumerate(groups.items()):
        for style, column in (*faint, strong):
            place.plot(
                [values[i] for i in members], [column.value(rows[i].report) or 0.0 for i in members], style, marker=".",
                color=_COLOURS[colour % len(_COLOURS)], label=group if group and column is strong[1] else None,
            )  # fmt: skip
    positive = [value for value in values if value > 0]
    if len(positive) == len(values) and max(values) / min(values) > 30:
        place.set_xscale("log")
    place.set_ylim(bottom=0)
    if len(set(values)) <= 8 and place.get_xscale() == "linear":
        place.set_xticks(sorted(set(values)))
    place.set_xlabel(name, fontsize=8)
    _dress(place, chart)
    if faint:
        place.set_title(f"{chart.title}: p50 dotted, p90 dashed, p99", fontsize=9)


def _dress(place: "Axes", chart: Chart) -> None:
    place.set_title(chart.title, fontsize=9)
    place.tick_params(labelsize=8)
    place.grid(alpha=0.25)
    place.set_axisbelow(True)
    for side in ("top", "right"):
        place.spines[side].set_visible(False)
    if place.get_legend_handles_labels()[1]:
        place.legend(fontsize=6.5, frameon=False)


def _share(column: Column) -> str:
    return next((share for share in _SPREADS if share in column.name), "")


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 or value == int(value) else f"{value:.{max(0, 2 - _digits(value))}f}"


def _digits(value: float) -> int:
    return math.floor(math.log10(value)) if value >= 1 else 0


def to_html(rows: Sequence[Row], title: str, png: bytes) -> str:
    """One file that needs no other."""
    columns = shown_columns(rows)
    head = "".join(f"<th>{html.escape(column.title)}</th>" for column in columns)
    body = "".join(
        f"<tr><td>{html.escape(row.case.label)}</td>"
        + "".join(f"<td>{cell(column, row.report)}</td>" for column in columns)
        + "</tr>\n"
        for row in rows
    )
    image = base64.b64encode(png).decode()
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n<h1>{html.escape(title)}</h1>\n"
        f'<p><img alt="the figures below as charts" src="data:image/png;base64,{image}">\n'
        f"<table><tr><th></th>{head}</tr>\n{body}</table></html>\n"
    )


def write(rows: Sequence[Row], title: str, folder: Path) -> list[Path]:
    """The table, the picture and the page, in a folder that is made if it is not there."""
    png = to_png(rows, title)
    contents = {
        "compare.csv": to_csv(rows).encode(),
        "compare.json": (json.dumps(to_json(rows), indent=1) + "\n").encode(),
        "compare.png": png,
        "compare.html": to_html(rows, title, png).encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, content in contents.items():
        paths.append(folder / name)
        paths[-1].write_bytes(content)
    return paths
