"""A result as a page: one file that needs no other, in light or dark as the reader's machine is."""

import html
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from chairlift.bench.charts import histogram, levels, points
from chairlift.bench.figures import LATENCIES, gaps_of
from chairlift.bench.result import Result, counted
from chairlift.telemetry.report import Spread

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --card: #f6f7f9; --ink: #1d2530; --faint: #626d7a; --line: #dde2e8;
  --a: #2b6cb0; --b: #c05621; --c: #2f855a; --warn: #8a4b08; --warn-back: #fff3e0 }
@media (prefers-color-scheme: dark) { :root { --back: #14181d; --card: #1c2229; --ink: #e3e8ee; --faint: #9aa6b2;
  --line: #323b45; --a: #63a4e8; --b: #e8935a; --c: #5cc18d; --warn: #ffca80; --warn-back: #3a2c14 } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 76rem; padding: 0 1.2rem;
  background: var(--back); color: var(--ink) }
h1 { font-size: 1.35rem; margin: 0 0 .2rem } h2 { font-size: 1.05rem; margin: 1.8rem 0 .6rem }
.about, small { color: var(--faint) } .about { margin: 0 0 1rem }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .7rem; margin-top: .8rem }
.tiles div, .charts svg { background: var(--card); border: 1px solid var(--line); border-radius: 8px }
.tiles div { padding: .6rem .9rem } .tiles b { display: block; font-size: 1.45rem; line-height: 1.3; font-weight: 600 }
.tiles span { color: var(--faint); font-size: .82rem }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: .7rem }
.charts svg { width: 100%; height: auto; display: block }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: .9rem;
  font-variant-numeric: tabular-nums }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--line); font-weight: 400 }
th { color: var(--faint) } .words th, .words td { text-align: left }
td:first-child, th:first-child { text-align: left; padding-left: 0 }
.warn { background: var(--warn-back); color: var(--warn); border-radius: 8px; padding: .5rem .9rem; margin: .4rem 0 }
svg text { font: 12px system-ui, sans-serif; fill: var(--faint); white-space: pre }
svg .title { font-size: 14px; font-weight: 600; fill: var(--ink) }
svg .grid { stroke: var(--line) } svg .axis { stroke: var(--faint) }
svg line.mark { stroke: var(--ink); stroke-dasharray: 3 3; opacity: .7 }
svg text.mark { font-size: 10px }
svg .a { --hue: var(--a) } svg .b { --hue: var(--b) } svg .c { --hue: var(--c) }
svg .fill { fill: var(--hue) } svg .key { fill: var(--hue) } svg .area { fill: var(--hue); opacity: .8 }
svg .dots { stroke: var(--hue); stroke-width: 3.2; stroke-linecap: round; opacity: .65 }
"""
_NAMES = {"ttft_s": "time to first token", "tpot_s": "time per output token", "itl_s": "time between chunks",
          "e2e_s": "end to end"}  # fmt: skip
FORMULAS = {
    "full, short": "the answer ended properly with at least / with fewer tokens than were asked for",
    "failed": "an error, a broken connection, a timeout, or an answer that did not end",
    "cut, unsent": "under way / not yet sent when the run was stopped",
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


def to_html(result: Result, title: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style></head>\n<body>'
        f"{''.join(_parts(result, title))}</body></html>\n"
    )


def _parts(result: Result, title: str) -> Iterator[str]:
    about = result.about
    yield f"<h1>{html.escape(title)}</h1>\n"
    where = f"{about.get('url', '')}, {about.get('at', '')}, chairlift {about.get('chairlift', '')}"
    yield f'<p class="about">{html.escape(where)}</p>\n'
    if result.stopped:
        yield _warning(f"Partial: {result.stopped}. These figures are of what was measured until then.")
    yield from (_warning(f"Doubt: {doubt}.") for doubt in result.client.doubts)
    yield f'<div class="tiles">{"".join(_tiles(result))}</div>\n'
    yield "<h2>Latency</h2>\n" + _table(_latency_rows(result))
    yield f'<h2>Distributions</h2>\n<div class="charts">{"".join(_distributions(result))}</div>\n'
    yield f'<h2>Over time</h2>\n<div class="charts">{"".join(_over_time(result))}</div>\n'
    yield "<h2>What was counted</h2>\n" + _table(_count_rows(result), has_words=True)
    yield "<h2>What the figures mean</h2>\n" + _table([("figure", "formula"), *FORMULAS.items()], has_words=True)


def _warning(text: str) -> str:
    return f'<p class="warn">{html.escape(text)}</p>\n'


def _tiles(result: Result) -> Iterator[str]:
    figures = result.figures
    yield _tile(f"{figures.full:,} of {figures.requests:,}", "answered in full")
    yield _tile(f"{figures.short:,} / {figures.failed:,}", "short / failed")
    yield _tile(f"{figures.requests_per_s:.2f}", "requests/s")
    yield _tile(f"{figures.output_tokens_per_s:,.0f}", "output tokens/s")
    if figures.goodput_per_s is not None:
        yield _tile(f"{figures.goodput_per_s:.2f}", f"good requests/s: {figures.slo}")
    yield _tile(f"{1e3 * figures.ttft_s.p50:,.0f} / {1e3 * figures.ttft_s.p99:,.0f} ms", "first token, p50 / p99")
    yield _tile(f"{1e3 * figures.tpot_s.p50:.1f} / {1e3 * figures.tpot_s.p99:.1f} ms", "per output token, p50 / p99")
    yield _tile(f"{figures.total_s:,.2f} s", "total time")


def _tile(value: str, name: str) -> str:
    return f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>"


def _latency_rows(result: Result) -> Iterator[tuple[str, ...]]:
    yield ("milliseconds", "mean", "p50", "p90", "p99", "max")
    for name in LATENCIES:
        spread: Spread = getattr(result.figures, name)
        values = (f"{1e3 * value:,.2f}" for value in asdict(spread).values())
        yield (f"{_NAMES[name]} ({name.removesuffix('_s')})", *values)


def _distributions(result: Result) -> Iterator[str]:
    answered = [record for record in result.records if record.is_answered]
    values: dict[str, Iterable[float]] = {
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


def _over_time(result: Result) -> Iterator[str]:
    timeline = result.timeline
    step = timeline.step_s
    yield levels("requests under way", step, {"running": timeline.running, "waiting": timeline.waiting}, "requests")
    step = timeline.rate_step_s
    yield levels("output tokens per second", step, {"tokens": timeline.tokens_per_s}, "tokens/s")
    yield levels("answers per second", step, {"answers": timeline.answers_per_s}, "requests/s")
    answered = [record for record in result.records if record.is_answered]
    each = {
        "end to end": [(record.sent_s, record.e2e_s) for record in answered],
        "first token": [(record.sent_s, record.ttft_s) for record in answered],
    }
    yield points("each request, seconds it took", each, "seconds; when it was sent")


def _count_rows(result: Result) -> Iterator[tuple[str, ...]]:
    figures, client = result.figures, result.client
    yield ("what", "count")
    yield ("requests", counted(figures))
    yield from ((f"failed: {reason}", f"{count:,}") for reason, count in figures.failures.items())
    yield ("warm-up, not counted", f"{result.warm_up:,}, of them {result.warm_up_failed:,} failed")
    yield ("tokens", f"{figures.prompt_tokens:,} prompt, {figures.output_tokens:,} output")
    yield ("chunks", f"{figures.chunks:,}")
    yield ("most requests at once", f"{figures.max_concurrency:,}")
    yield ("client processes, busiest", f"{client.clients}, {client.busiest:.0%} of a core")
    if client.max_chunks_per_s is not None:
        yield ("chunks they could take", f"{client.max_chunks_per_s:,.0f}/s at {client.us_per_chunk:.1f} us each")
    yield ("timers of the client late, p99", f"{1e3 * client.lag_s.p99:.2f} ms")
    yield ("requests sent late, p99", f"{1e3 * client.late_s.p99:.2f} ms")
    yield from ((name, str(value)) for name, value in result.about.items() if value is not None)


def _table(rows: Iterable[tuple[str, ...]], has_words: bool = False) -> str:
    head, *body = rows
    lines = ["<tr>" + "".join(f"<th>{html.escape(text)}</th>" for text in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in body]
    return f"<table{' class=words' * has_words}>" + "\n".join(lines) + "</table>\n"
