"""All that a load test found, and how it is said: as text, as JSON, and as CSV with a row for each request."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chairlift.bench.client_limit import ClientLimit
from chairlift.bench.figures import LATENCIES, BenchFigures, figures_of
from chairlift.bench.record import ClientRecord
from chairlift.bench.run import Measurements
from chairlift.bench.timeline import RunTimeline
from chairlift.report.text import columns, line
from chairlift.telemetry.report import Slo, Spread

KIND, VERSION = "chairlift bench", 1
COLUMNS = (
    "index", "ending", "due_s", "sent_s", "ttft_s", "tpot_s", "e2e_s", "prompt_tokens", "asked_tokens", "output_tokens",
    "chunks", "reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    about: Mapping[str, Any]  # what was run against what: plain values
    stopped: str  # why it is only a part; empty if it is whole
    warm_up: int
    warm_up_failed: int
    figures: BenchFigures
    client: ClientLimit
    timeline: RunTimeline
    records: Sequence[ClientRecord]

    def to_json(self) -> str:
        """A line for each request, so that the file can be read and compared by line."""
        whole = {
            "kind": KIND,
            "version": VERSION,
            "partial": self.stopped or None,
            "about": dict(self.about),
            "warm_up": self.warm_up,
            "warm_up_failed": self.warm_up_failed,
            "figures": asdict(self.figures),
            "client": asdict(self.client),
            "timeline": asdict(self.timeline),
        }
        rows = ",\n".join(json.dumps(dict(zip(COLUMNS, _row(record), strict=True))) for record in self._in_order())
        return json.dumps(whole, indent=1)[:-2] + f',\n "requests": [\n{rows}\n]}}\n'

    def to_csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_row(record) for record in self._in_order())
        return out.getvalue()

    def to_text(self) -> str:
        return "\n".join(self._lines())

    def _in_order(self) -> list[ClientRecord]:
        return sorted(self.records, key=lambda record: record.index)

    def _lines(self) -> Iterator[str]:
        figures = self.figures
        if self.stopped:
            yield line("PARTIAL", f"{self.stopped}; what was measured until then:")
        yield line("requests", counted(figures))
        for reason, count in list(figures.failures.items())[:10]:
            yield line("", f"{count} x {reason}")
        if self.warm_up:
            yield line("warm-up", f"{self.warm_up} requests before, not counted; {self.warm_up_failed} of them failed")
        yield line("total time", f"{figures.total_s:.3f} s, at most {figures.max_concurrency} requests at once")
        yield line(
            "throughput",
            f"{figures.requests_per_s:.2f} requests/s, {figures.output_tokens_per_s:.1f} output tokens/s (peak "
            f"{figures.peak_output_tokens_per_s:.0f}), {figures.total_tokens_per_s:.1f} tokens/s in all",
        )
        told = "" if figures.is_told else "; the server did not count them: each chunk is taken for one"
        yield line(
            "tokens", f"{figures.prompt_tokens} prompt, {figures.output_tokens} output in {figures.chunks} chunks{told}"
        )
        if figures.slo is not None:
            share = figures.good / figures.sent if figures.good and figures.sent else 0.0
            yield line(
                "goodput",
                f"{figures.goodput_per_s:.2f} requests/s: {figures.good} ({share:.1%}) in full within {figures.slo}",
            )
        client = self.client
        yield line(
            "client",
            f"{client.clients} process{'es' * (client.clients != 1)}, the busiest at {client.busiest:.0%} of a core, "
            f"{_fit_for(client)}; all cores {client.machine:.0%} busy; p99 of being late: "
            f"timers {1e3 * client.lag_s.p99:.1f} ms, requests {1e3 * client.late_s.p99:.1f} ms",
        )
        for doubt in client.doubts:
            yield line("DOUBT", doubt)
        yield ""
        yield columns("milliseconds", "mean", "p50", "p90", "p99", "max")
        for name in LATENCIES:
            spread: Spread = getattr(figures, name)
            yield columns(name.removesuffix("_s"), *(f"{1000 * value:.2f}" for value in asdict(spread).values()))


def _fit_for(client: ClientLimit) -> str:
    most = client.max_chunks_per_s
    return "too few chunks to tell how many it can take" if most is None else f"fit for {most:.0f} chunks/s"


def summarize(measured: Measurements, about: Mapping[str, Any], slo: Slo | None = None) -> BenchResult:
    records = measured.records
    return BenchResult(
        about=about,
        stopped=measured.stopped,
        warm_up=measured.num_warm_up,
        warm_up_failed=measured.num_warm_up_failed,
        figures=figures_of(records, measured.num_planned, slo),
        client=ClientLimit.of(measured.usages, records, measured.machine),
        timeline=RunTimeline.of(records),
        records=records,
    )


def counted(figures: BenchFigures) -> str:
    """`1500: 1498 full, 1 short, 1 failed`, and what did not end."""
    rare = {"short": figures.short, "failed": figures.failed, "cut": figures.cut, "unsent": figures.unsent}
    always = ("short", "failed")
    parts = [f"{count} {word}" for word, count in rare.items() if count or word in always]
    return f"{figures.requests}: {figures.sent} sent, {', '.join([f'{figures.full} full', *parts])}"


def _row(record: ClientRecord) -> list[Any]:
    has_time = record.is_answered
    return [
        record.index,
        str(record.ending),
        round(record.due_s, 6),
        round(record.sent_s, 6),
        round(record.ttft_s, 6) if has_time else None,
        round(record.tpot_s, 6) if has_time and not math.isnan(record.tpot_s) else None,
        round(record.e2e_s, 6) if has_time else None,
        record.prompt_tokens,
        record.asked_tokens,
        record.output_tokens,
        len(record.chunks),
        record.reason,
    ]
