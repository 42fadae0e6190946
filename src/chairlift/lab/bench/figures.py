"""The figures of a load test, from the record of each request; docs/bench.md has each figure's formula.

Always: every request of the workload is counted once: full, short, failed, cut or unsent. Latencies are those of
answered requests (full or short), goodput that of full ones.
"""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from chairlift.lab.bench.record import ClientRecord, Ending
from chairlift.lab.bench.timeline import max_concurrency_of, peak_tokens_per_s
from chairlift.telemetry.report import Latencies, Slo, Spread

LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFigures:
    requests: int
    sent: int
    full: int
    short: int
    failed: int
    cut: int
    unsent: int
    failures: Mapping[str, int]  # by reason, the most frequent first
    chunks: int
    total_s: float
    prompt_tokens: int
    cached_tokens: int | None  # of them; None: the server told of none
    output_tokens: int
    is_told: bool  # the server reported token counts; else every chunk counts as one
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    peak_output_tokens_per_s: float
    max_concurrency: int
    ttft_s: Spread
    tpot_s: Spread
    itl_s: Spread
    e2e_s: Spread
    slo: str | None
    good: int | None
    goodput_per_s: float | None


def figures_of(records: Sequence[ClientRecord], num_planned: int, slo: Slo | None = None) -> BenchFigures:
    counts = Counter(record.ending for record in records)
    answered = [record for record in records if record.is_answered]
    total_s = max(r.last_s for r in records) - min(r.sent_s for r in records) if records else 0.0
    per_s = 1.0 / total_s if total_s > 0 else 0.0
    num_prompt = sum(record.prompt_tokens for record in answered)
    cached = [record.cached_tokens for record in answered if record.cached_tokens is not None]
    num_output = sum(record.output_tokens for record in records)
    good = None if slo is None else _num_good(answered, slo)
    return BenchFigures(
        requests=num_planned,
        sent=len(records),
        full=counts[Ending.FULL],
        short=counts[Ending.SHORT],
        failed=counts[Ending.FAILED],
        cut=counts[Ending.CUT],
        unsent=num_planned - len(records),
        failures=dict(Counter(r.reason for r in records if r.ending is Ending.FAILED).most_common()),
        chunks=sum(len(record.chunks) for record in records),
        total_s=total_s,
        prompt_tokens=num_prompt,
        cached_tokens=sum(cached) if cached else None,
        output_tokens=num_output,
        is_told=all(record.is_told for record in answered),
        requests_per_s=len(answered) * per_s,
        output_tokens_per_s=num_output * per_s,
        total_tokens_per_s=(num_prompt + num_output) * per_s,
        peak_output_tokens_per_s=peak_tokens_per_s(records),
        max_concurrency=max_concurrency_of(records),
        ttft_s=Spread.of([record.ttft_s for record in answered]),
        tpot_s=Spread.of([record.tpot_s for record in answered]),
        itl_s=Spread.of(gaps_of(answered)),
        e2e_s=Spread.of([record.e2e_s for record in answered]),
        slo=None if slo is None else str(slo),
        good=good,
        goodput_per_s=None if good is None else good * per_s,
    )


def gaps_of(records: Sequence[ClientRecord]) -> "array[float]":
    """The gaps between the chunks of each request."""
    gaps: array[float] = array("d")
    for record in records:
        gaps.extend(later - earlier for earlier, later in pairwise(record.chunks.tolist()))
    return gaps


def _num_good(answered: Sequence[ClientRecord], slo: Slo) -> int:
    done = Latencies.none()
    for record in answered:
        if record.ending is Ending.FULL:
            done.ttft_s.append(record.ttft_s)
            done.tpot_s.append(record.tpot_s)
            done.e2e_s.append(record.e2e_s)
    return done.num_good(slo)
