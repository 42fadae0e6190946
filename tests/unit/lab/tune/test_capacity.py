import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.tune.capacity import arrivals_at, capacity, check_possible, last_arrival_s
from chairlift.lab.tune.evaluate import Evaluator
from chairlift.lab.tune.knobs import default_choice
from fakes.tuned import KNOBS, work

CHOICE = default_choice(KNOBS)
SLO = "ttft_p90=100ms"


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ("none", "poisson:rate=4"),
        ("closed:concurrency=3", "poisson:rate=4"),
        ("poisson:rate=1", "poisson:rate=4"),
        ("constant:rate=1", "constant:rate=4"),
        ("gamma:rate=1,cv=2", "gamma:rate=4,cv=2"),
        ("trace", "trace:scale=0.25"),
        ("trace:scale=3", "trace:scale=0.25"),
    ],
)
def test_arrivals_keep_their_kind_at_another_rate(arrivals: str, expected: str) -> None:
    assert arrivals_at(arrivals, 4.0, num_requests=11, last_arrival_s=10.0) == expected


def test_the_capacity_is_met_and_a_little_more_is_not() -> None:
    evaluator = Evaluator(work(60, "poisson:rate=1", SLO))
    rate = capacity(evaluator, CHOICE)
    assert rate > 0
    for factor, is_met in ((1.0, True), (1.03, False)):
        faster = Evaluator(work(60, f"poisson:rate={factor * rate}", SLO))
        assert (faster.evaluate(CHOICE).point.latency <= 1.0) == is_met


def test_a_slack_limit_allows_no_more_than_is_served_at_once() -> None:
    rate = capacity(Evaluator(work(60, "poisson:rate=1", "e2e_max=1000s")), CHOICE)
    at_once = Evaluator(work(60)).evaluate(CHOICE).report
    assert at_once is not None
    assert rate == at_once.requests_per_s


def test_a_limit_that_one_request_alone_misses_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"tpot_p50=1ms: cannot be met: .* need 10"):
        check_possible(Evaluator(work(slo="ttft_p99=10s,tpot_p50=1ms")), CHOICE)
    check_possible(Evaluator(work(slo="ttft_p99=10s")), CHOICE)


def test_a_closed_loop_has_no_last_arrival() -> None:
    assert last_arrival_s(Evaluator(work(5, "trace", gap_s=1.0))) == 4.0
    assert last_arrival_s(Evaluator(work(5, "closed:concurrency=2", gap_s=1.0))) == 0.0
