"""One workload under many settings in the simulator, as rows of a table."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from chairlift.lab.sim.comparison.vary import Variant
from chairlift.lab.sim.profile import Profile
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.item import Item
from chairlift.telemetry.report import Report, Slo, columns


class VariantReport(NamedTuple):
    variant: Variant
    report: Report


class Column(NamedTuple):
    name: str
    title: str
    value: Callable[[Report], float | None]
    digits: int


def _spread_ms(figure: str, share: str) -> Callable[[Report], float]:
    return lambda report: 1e3 * getattr(getattr(report, figure), share)


COLUMNS = (
    Column("total_s", "total s", lambda r: r.total_s, 3),
    Column("steps", "steps", lambda r: r.steps, 0),
    Column("requests_per_s", "req/s", lambda r: r.requests_per_s, 2),
    *(
        Column(f"{figure}_{share}_ms", f"{figure} {share} ms", _spread_ms(f"{figure}_s", share), 2)
        for figure in ("ttft", "tpot")
        for share in ("p50", "p90", "p99")
    ),
    Column("goodput_per_s", "goodput/s", lambda r: r.goodput_per_s, 2),
    Column("preemptions", "preempted", lambda r: r.preemptions, 0),
    Column("swaps", "swapped", lambda r: r.swaps, 0),
    Column("moves", "moved", lambda r: r.moves, 0),
    Column("kv_moves", "with KV", lambda r: r.kv_moves, 0),
    Column("cache_hit_tokens", "cached tok", lambda r: r.cache_hit_tokens, 0),
    Column("blocks_saved", "saved blocks", lambda r: r.blocks_saved.mean, 1),
    Column("fairness", "fairness", lambda r: r.fairness, 3),
)


def compare(
    variants: Iterable[Variant],
    items: Sequence[Item],
    profile: Profile,
    seed: int = 0,
    slo: Slo | None = None,
    watch: Callable[[float], None] | None = None,
) -> Iterator[VariantReport]:
    for variant in variants:
        report = run(variant.settings, profile, items, parse_arrivals(variant.arrivals), seed, slo, watch=watch)
        yield VariantReport(variant, report)


def shown_columns(rows: Sequence[VariantReport]) -> list[Column]:
    """Without rare columns that are empty or zero in every row."""
    rare = ("goodput_per_s", "preemptions", "swaps", "moves", "kv_moves", "cache_hit_tokens", "blocks_saved")
    return [column for column in COLUMNS if column.name not in rare or any(column.value(r.report) for r in rows)]


def cell(column: Column, report: Report) -> str:
    value = column.value(report)
    return "" if value is None else f"{value:.{column.digits}f}"


def table(rows: Sequence[VariantReport]) -> list[tuple[str, ...]]:
    """The titles, then a line for each row."""
    shown = shown_columns(rows)
    titles = ("", *(column.title for column in shown))
    return [titles, *((row.variant.label, *(cell(column, row.report) for column in shown)) for row in rows)]


def to_text(rows: Sequence[VariantReport]) -> str:
    first = max(len(row.variant.label) for row in rows)
    lines = [columns(*line, first=first, width=13) for line in table(rows)]
    alike = [f"identical in every figure: {', '.join(labels)}" for labels in identical(rows)]
    return "\n".join([*lines, "", *alike] if alike else lines)


def identical(rows: Sequence[VariantReport]) -> list[list[str]]:
    """The labels of rows that differ in no figure, together."""
    found: dict[tuple[float | None, ...], list[str]] = {}
    for row in rows:
        found.setdefault(tuple(column.value(row.report) for column in COLUMNS), []).append(row.variant.label)
    return [labels for labels in found.values() if len(labels) > 1]


def to_csv(rows: Sequence[VariantReport]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    varied = list(rows[0].variant.varied)
    writer.writerow([*varied, *(column.name for column in COLUMNS)])
    for row in rows:
        values = (column.value(row.report) for column in COLUMNS)
        writer.writerow([*row.variant.varied.values(), *("" if value is None else value for value in values)])
    return out.getvalue()


def to_json(rows: Sequence[VariantReport]) -> list[dict[str, Any]]:
    return [{"varied": dict(row.variant.varied), "report": row.report.to_json()} for row in rows]
