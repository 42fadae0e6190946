"""Figures of any run: percentiles by another library's formula, and counts that add up."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.lab.bench.figures import figures_of
from chairlift.lab.bench.record import ClientRecord, Ending
from chairlift.lab.bench.timeline import RunTimeline, max_concurrency_of
from chairlift.telemetry.report import Slo, Spread
from fakes.bench_records import record

SECONDS = st.floats(0.0, 100.0, allow_nan=False)


@st.composite
def records(draw: st.DrawFn) -> list[ClientRecord]:
    made = []
    for index in range(draw(st.integers(0, 30))):
        sent_s = draw(SECONDS)
        times = np.cumsum([sent_s, *draw(st.lists(SECONDS, min_size=1, max_size=8))])[1:].tolist()
        ending = draw(st.sampled_from(Ending))
        made.append(record(index, sent_s, times, ending=ending, tokens=len(times) + draw(st.integers(0, 3))))
    return made


def check(spread: Spread, values: Sequence[float]) -> None:
    if not values:
        assert spread == Spread()
        return
    for share in (50, 90, 99):
        assert getattr(spread, f"p{share}") == pytest.approx(np.percentile(values, share), rel=1e-9, abs=1e-9)
    assert spread.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)
    assert spread.max == max(values)


@settings(deadline=None)
@given(st.lists(SECONDS))
def test_percentiles_are_exact(values: list[float]) -> None:
    check(Spread.of(values), values)


@settings(deadline=None)
@given(records(), st.integers(0, 5))
def test_figures_agree_with_numpy_and_counts_add_up(made: list[ClientRecord], num_unsent: int) -> None:
    figures = figures_of(made, len(made) + num_unsent, Slo(ttft=50.0))
    parts = (figures.full, figures.short, figures.failed, figures.cut, figures.unsent)
    assert sum(parts) == figures.requests == len(made) + num_unsent
    answered = [r for r in made if r.ending in (Ending.FULL, Ending.SHORT)]
    check(figures.ttft_s, [r.chunks[0] - r.sent_s for r in answered])
    check(figures.e2e_s, [r.last_s - r.sent_s for r in answered])
    check(figures.itl_s, [gap for r in answered for gap in np.diff(r.chunks).tolist()])
    tpots = [(r.last_s - r.chunks[0]) / (r.output_tokens - 1) for r in answered if r.output_tokens > 1]
    check(figures.tpot_s, tpots)
    assert figures.good is not None and figures.good <= figures.full


@settings(deadline=None)
@given(records())
def test_a_timeline_never_counts_more_than_there_are(made: list[ClientRecord]) -> None:
    timeline = RunTimeline.of(made)
    most = max_concurrency_of(made)
    for waiting, running in zip(timeline.waiting, timeline.running, strict=True):
        assert waiting >= 0 and running >= 0
        assert waiting + running <= most
    tokens = sum(timeline.tokens_per_s) * timeline.rate_step_s
    assert tokens == pytest.approx(sum(r.output_tokens for r in made))
