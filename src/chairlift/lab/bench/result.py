"""The result of a load test, as text, as JSON, and as CSV with a row for each request."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chairlift.lab.bench.client_limit import ClientLimit
from chairlift.lab.bench.figures import LATENCIES, BenchFigures, figures_of
from chairlift.lab.bench.record import ClientRecord
from chairlift.lab.bench.run import Measurements
from chairlift.lab.bench.timeline import RunTimeline
from chairlift.telemetry.report import Slo, Spread, columns, line

KIND, VERSION = "chairlift bench", 1
COLUMNS = (
    "index", "ending", "due_s", "sent_s", "ttft_s", "tpot_s", "e2e_s", "prompt_tokens", "cached_tokens",
    "asked_tokens", "output_tokens", "chunks", "reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    about: Mapping[str, Any]  # the server and the load: plain values
    stopped: str  # why it is partial; empty if it is complete
    warm_up: int
    warm_up_failed: int
    figures: BenchFigures
    client: ClientLimit
    timeline: RunTimeline
    records: Sequence[ClientRecord]

    def to_json(self) -> str:
        """One line per request, so that files can be compared by line."""
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
        told = "" if figures.is_told else "; the server did not count them: each chunk counts as one"
        cached = "" if figures.cached_tokens is None else f" ({figures.cached_tokens} cached)"
        yield line(
            "tokens",
            f"{figures.prompt_tokens} prompt{cached}, {figures.output_tokens} output in {figures.chunks} chunks{told}",
        )
        if figures.slo is not None:
            share = figures.good / figures.sent if figures.good and figures.sent else 0.0
            yield line(
                "goodput",
                f"{figures.goodput_per_s:.2f} requests/s: {figures.good} ({share:.1%}) in full within {figures.slo}",
            )
        client = self.client
        most = client.max_chunks_per_s
        fit = "too few chunks to tell how many it can take" if most is None else f"fit for {most:.0f} chunks/s"
        yield line(
            "client",
            f"{client.clients} process{'es' * (client.clients != 1)}, the busiest at {client.busiest:.0%} of a core, "
            f"{fit}; all cores {client.machine:.0%} busy; p99 of being late: "
            f"timers {1e3 * client.lag_s.p99:.1f} ms, requests {1e3 * client.late_s.p99:.1f} ms",
        )
        for doubt in client.doubts:
            yield line("DOUBT", doubt)
        yield ""
        yield columns("milliseconds", "mean", "p50", "p90", "p99", "max")
        for name in LATENCIES:
            spread: Spread = getattr(figures, name)
            yield columns(name.removesuffix("_s"), *spread.in_ms())


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
    """`1500: 1500 sent, 1498 full, 1 short, 1 failed`, and those cut or unsent."""
    rare = [f", {count} {word}" for word, count in (("cut", figures.cut), ("unsent", figures.unsent)) if count]
    text = (
        f"{figures.requests}: {figures.sent} sent, {figures.full} full, {figures.short} short, {figures.failed} failed"
    )
    return text + "".join(rare)


def _row(record: ClientRecord) -> list[Any]:
    latencies = (record.ttft_s, record.tpot_s, record.e2e_s) if record.is_answered else (math.nan,) * 3
    return [
        record.index,
        str(record.ending),
        round(record.due_s, 6),
        round(record.sent_s, 6),
        *(None if math.isnan(latency) else round(latency, 6) for latency in latencies),
        record.prompt_tokens,
        record.cached_tokens,
        record.asked_tokens,
        record.output_tokens,
        len(record.chunks),
        record.reason,
    ]
