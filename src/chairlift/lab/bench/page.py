"""The result of a load test as a page."""

from collections.abc import Iterator, Sequence

from chairlift.lab.bench.figures import LATENCIES, gaps_of
from chairlift.lab.bench.result import BenchResult, counted
from chairlift.lab.report import page
from chairlift.lab.report.chart import PlotSeries, histogram, levels, plot
from chairlift.lab.report.frame import Chart
from chairlift.lab.report.page import Charts, Element, Heading, Paragraph, Table, Tiles
from chairlift.telemetry.report import Spread

_NAMES = {"ttft_s": "time to first token", "tpot_s": "time per output token", "itl_s": "time between chunks",
          "e2e_s": "end to end"}  # fmt: skip
FORMULAS = {
    "full, short": "the answer ended properly with at least / with fewer tokens than were asked for",
    "failed": "an error, a broken connection, a timeout, or an answer that did not end",
    "cut, unsent": "in flight / not yet sent when the run was stopped",
    "ttft": "first chunk with a token - sent (connecting included)",
    "tpot": "(last token - first chunk) / (output tokens - 1); none where there is one token",
    "itl": "each chunk - the one before it, over all chunks of all answered requests",
    "e2e": "last token - sent",
    "total time": "last token of all - first request sent",
    "requests/s": "(full + short) / total time",
    "output tokens/s": "all output tokens, also of requests that failed or were cut / total time",
    "goodput": "full answers within every limit of the SLO / total time",
    "mean, p50, p90, p99": "over answered requests, exact; between two values by linear interpolation",
    "running, waiting": "sent and with / without a first chunk",
}


def to_html(result: BenchResult, title: str) -> str:
    return page.to_html(title, list(_blocks(result)))


def _blocks(result: BenchResult) -> Iterator[Element]:
    about = result.about
    yield Paragraph(f"{about.get('url', '')}, {about.get('at', '')}, chairlift {about.get('chairlift', '')}", "about")
    if result.stopped:
        yield Paragraph(f"Partial: {result.stopped}. The figures cover what was measured until then.", "warn")
    yield from (Paragraph(f"Doubt: {doubt}.", "warn") for doubt in result.client.doubts)
    yield Tiles(list(_tiles(result)))
    yield Heading("Latency")
    yield Table(("milliseconds", "mean", "p50", "p90", "p99", "max"), list(_latency_rows(result)))
    yield Heading("Distributions")
    yield Charts(list(_distributions(result)))
    yield Heading("Over time")
    yield Charts(list(_over_time(result)))
    yield Heading("What was counted")
    yield Table(("what", "count"), list(_count_rows(result)))
    yield Heading("What the figures mean")
    yield Table(("figure", "formula"), list(FORMULAS.items()))


def _tiles(result: BenchResult) -> Iterator[tuple[str, str]]:
    figures = result.figures
    yield (f"{figures.full:,} of {figures.requests:,}", "answered in full")
    yield (f"{figures.short:,} / {figures.failed:,}", "short / failed")
    yield (f"{figures.requests_per_s:.2f}", "requests/s")
    yield (f"{figures.output_tokens_per_s:,.0f}", "output tokens/s")
    if figures.goodput_per_s is not None:
        yield (f"{figures.goodput_per_s:.2f}", f"good requests/s: {figures.slo}")
    for spread, form, what in ((figures.ttft_s, ",.0f", "first token"), (figures.tpot_s, ".1f", "per output token")):
        _, p50, _, p99, _ = spread.in_ms(form)
        yield (f"{p50} / {p99} ms", f"{what}, p50 / p99")
    yield (f"{figures.total_s:,.2f} s", "total time")


def _latency_rows(result: BenchResult) -> Iterator[tuple[str, ...]]:
    for name in LATENCIES:
        spread: Spread = getattr(result.figures, name)
        yield (f"{_NAMES[name]} ({name.removesuffix('_s')})", *spread.in_ms(",.2f"))


def _distributions(result: BenchResult) -> Iterator[Chart]:
    answered = [record for record in result.records if record.is_answered]
    values: dict[str, Sequence[float]] = {
        "ttft_s": [record.ttft_s for record in answered],
        "tpot_s": [record.tpot_s for record in answered if record.output_tokens > 1],
        "itl_s": gaps_of(answered),
        "e2e_s": [record.e2e_s for record in answered],
    }
    for name in LATENCIES:
        spread: Spread = getattr(result.figures, name)
        marks = {share: 1e3 * getattr(spread, share) for share in ("p50", "p90", "p99")}
        what = "chunks" if name == "itl_s" else "requests"
        yield histogram(f"{_NAMES[name]}: {what}", [1e3 * value for value in values[name]], marks, "ms")


def _over_time(result: BenchResult) -> Iterator[Chart]:
    timeline = result.timeline
    step = timeline.step_s
    yield levels("requests in flight", step, {"running": timeline.running, "waiting": timeline.waiting}, "requests")
    step = timeline.rate_step_s
    yield levels("output tokens per second", step, {"tokens": timeline.tokens_per_s}, "tokens/s")
    yield levels("answers per second", step, {"answers": timeline.answers_per_s}, "requests/s")
    answered = [record for record in result.records if record.is_answered]
    each = [
        PlotSeries([(record.sent_s, record.e2e_s) for record in answered], "end to end"),
        PlotSeries([(record.sent_s, record.ttft_s) for record in answered], "first token", hue=1),
    ]
    yield plot("each request, seconds it took", each, "seconds; when it was sent")


def _count_rows(result: BenchResult) -> Iterator[tuple[str, ...]]:
    figures, client = result.figures, result.client
    yield ("requests", counted(figures))
    yield from ((f"failed: {reason}", f"{count:,}") for reason, count in figures.failures.items())
    yield ("warm-up, not counted", f"{result.warm_up:,}, of them {result.warm_up_failed:,} failed")
    cached = "" if figures.cached_tokens is None else f" ({figures.cached_tokens:,} cached)"
    yield ("tokens", f"{figures.prompt_tokens:,} prompt{cached}, {figures.output_tokens:,} output")
    yield ("chunks", f"{figures.chunks:,}")
    yield ("most requests at once", f"{figures.max_concurrency:,}")
    yield ("client processes, busiest", f"{client.clients}, {client.busiest:.0%} of a core")
    if client.max_chunks_per_s is not None:
        yield ("chunks they could take", f"{client.max_chunks_per_s:,.0f}/s at {client.us_per_chunk:.1f} us each")
    yield ("timers of the client late, p99", f"{1e3 * client.lag_s.p99:.2f} ms")
    yield ("requests sent late, p99", f"{1e3 * client.late_s.p99:.2f} ms")
    yield from ((name, str(value)) for name, value in result.about.items() if value is not None)
