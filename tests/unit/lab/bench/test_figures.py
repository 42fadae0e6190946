import math

import pytest

from chairlift.lab.bench.figures import figures_of, gaps_of
from chairlift.lab.bench.record import Ending
from chairlift.telemetry.report import Slo
from fakes.bench_records import record


def test_times_of_one_request() -> None:
    one = record(sent_s=1.0, times=(1.5, 1.6, 1.8), last_s=2.1, tokens=4)
    assert one.ttft_s == pytest.approx(0.5)
    assert one.tpot_s == pytest.approx((2.1 - 1.5) / 3)
    assert one.e2e_s == pytest.approx(1.1)
    assert gaps_of([one]).tolist() == pytest.approx([0.1, 0.2])
    assert math.isnan(record(times=(1.0,)).tpot_s)


def test_every_request_is_counted_once() -> None:
    records = [
        record(0, 0.0, (1.0, 2.0)),
        record(1, 0.0, (1.0,), asked=3, ending=Ending.SHORT),
        record(2, 0.0, ending=Ending.FAILED, reason="HTTP 500"),
        record(3, 0.0, ending=Ending.FAILED, reason="HTTP 500"),
        record(4, 0.0, (1.0,), ending=Ending.FAILED, reason="the answer broke off"),
        record(5, 0.0, (3.0,), ending=Ending.CUT),
    ]
    figures = figures_of(records, 10)
    assert (figures.requests, figures.sent, figures.unsent) == (10, 6, 4)
    assert (figures.full, figures.short, figures.failed, figures.cut) == (1, 1, 3, 1)
    assert list(figures.failures.items()) == [("HTTP 500", 2), ("the answer broke off", 1)]
    assert figures.chunks == 5


def test_rates_are_over_the_time_from_the_first_request_to_the_last_token() -> None:
    records = [
        record(0, 1.0, (2.0, 3.0), prompt_tokens=5),
        record(1, 2.0, (3.0, 6.0), prompt_tokens=7),
        record(2, 2.0, (4.0,), ending=Ending.FAILED, prompt_tokens=100),
    ]
    figures = figures_of(records, 3)
    assert figures.total_s == pytest.approx(5.0)
    assert figures.requests_per_s == pytest.approx(2 / 5)
    assert figures.output_tokens_per_s == pytest.approx(5 / 5)
    assert figures.total_tokens_per_s == pytest.approx((12 + 5) / 5)
    assert figures.peak_output_tokens_per_s == 2
    assert figures.max_concurrency == 3


def test_latencies_are_those_of_answered_requests() -> None:
    records = [
        record(0, 0.0, (0.1, 0.2)),
        record(1, 0.0, (0.3,), asked=5, ending=Ending.SHORT),
        record(2, 0.0, (9.0,), ending=Ending.FAILED),
        record(3, 0.0, (9.0,), ending=Ending.CUT),
    ]
    figures = figures_of(records, 4)
    assert figures.ttft_s.max == pytest.approx(0.3)
    assert figures.tpot_s.mean == pytest.approx(0.1)
    assert figures.itl_s.max == pytest.approx(0.1)


def test_goodput_counts_full_answers_within_every_limit() -> None:
    records = [
        record(0, 0.0, (0.1, 0.2)),
        record(1, 0.0, (0.9, 1.0)),
        record(2, 0.0, (0.1, 0.8)),
        record(3, 0.0, (0.1,), asked=2, ending=Ending.SHORT),
        record(4, 0.0, (0.2,)),
    ]
    figures = figures_of(records, 5, Slo(ttft=0.5, tpot=0.5))
    assert figures.good == 2
    assert figures.goodput_per_s == pytest.approx(2 / 1.0)
    assert figures.slo == "ttft=0.5s,tpot=0.5s"
    assert figures_of(records, 5).good is None


def test_token_counts_of_the_server_are_marked() -> None:
    assert not figures_of([record(times=(1.0,))], 1).is_told
    assert figures_of([record(times=(1.0,), tokens=3)], 1).is_told


def test_an_empty_run_has_figures() -> None:
    figures = figures_of([], 5)
    assert (figures.total_s, figures.requests_per_s, figures.ttft_s.p99, figures.unsent) == (0.0, 0.0, 0.0, 5)
