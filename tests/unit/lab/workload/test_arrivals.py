from itertools import islice, pairwise, repeat
from statistics import fmean, pstdev

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.item import Item

RECORDED = [Item(prompt_tokens=1, output_tokens=1, arrival_s=float(second)) for second in (0, 2, 2, 5)]
MANY = 20_000


def times(text: str, seed: int = 0) -> list[float]:
    return [item.arrival_s for item in parse_arrivals(text).apply(RECORDED, seed)]


def gaps(text: str) -> list[float]:
    drawn = parse_arrivals(text).apply(islice(repeat(RECORDED[0]), MANY), 7)
    return [after - before for before, after in pairwise(item.arrival_s for item in drawn)]


def test_a_trace_keeps_its_times() -> None:
    assert times("trace") == [0.0, 2.0, 2.0, 5.0]


def test_a_scaled_trace_is_faster() -> None:
    assert times("trace:scale=0.5") == [0.0, 1.0, 1.0, 2.5]


def test_none_means_all_at_once() -> None:
    assert times("none") == [0.0, 0.0, 0.0, 0.0]


def test_constant_gaps_are_equal() -> None:
    assert times("constant:rate=4") == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    ("text", "cv"), [("poisson:rate=5", 1.0), ("gamma:rate=5,cv=2", 2.0), ("gamma:rate=5,cv=0.3", 0.3)]
)
def test_drawn_gaps_have_the_asked_mean_and_spread(text: str, cv: float) -> None:
    drawn = gaps(text)
    assert min(drawn) >= 0
    assert fmean(drawn) == pytest.approx(0.2, rel=0.05)
    assert pstdev(drawn) / fmean(drawn) == pytest.approx(cv, rel=0.05)


def test_a_ramp_reaches_its_rate_and_stays() -> None:
    drawn = parse_arrivals("ramp:from=2,to=10,over=100").apply(islice(repeat(RECORDED[0]), MANY), 7)
    times = [item.arrival_s for item in drawn]
    begun, risen, later = (sum(low <= time < low + 100 for time in times) for low in (0, 100, 500))
    assert begun == pytest.approx(100 * (2 + 10) / 2, rel=0.1)
    assert sum(time < 50 for time in times) == pytest.approx(50 * (2 + 6) / 2, rel=0.15)
    assert risen == pytest.approx(1000, rel=0.1)
    assert later == pytest.approx(1000, rel=0.1)


def test_a_ramp_may_fall() -> None:
    drawn = parse_arrivals("ramp:from=10,to=2,over=100").apply(islice(repeat(RECORDED[0]), MANY), 7)
    times = [item.arrival_s for item in drawn]
    assert all(after >= before for before, after in pairwise(times))
    assert sum(time < 100 for time in times) == pytest.approx(600, rel=0.1)


def test_the_seed_decides() -> None:
    assert times("poisson:rate=1", seed=3) == times("poisson:rate=1", seed=3)
    assert times("poisson:rate=1", seed=3) != times("poisson:rate=1", seed=4)


def test_a_closed_loop_has_a_concurrency() -> None:
    assert parse_arrivals("closed:concurrency=8").concurrency == 8
    assert parse_arrivals("trace").concurrency == 0


def test_items_are_drawn_one_at_a_time() -> None:
    endless = parse_arrivals("poisson:rate=1").apply(repeat(RECORDED[0]), 0)
    assert next(iter(endless)).arrival_s == 0.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("poisson", "poisson: rate must be a number above 0, but it is missing"),
        ("gamma:rate=1", "gamma: cv must be"),
        ("constant:rate=0", "constant: rate must be a number above 0, got '0'"),
        ("closed:concurrency=0.5", "concurrency must be a whole number"),
        ("ramp:from=1,to=2", "ramp: over must be a number above 0, but it is missing"),
        ("trace:rate=3", "unknown parameter 'rate'; there are: scale"),
        ("none:x=1", "unknown parameter 'x'; it has none"),
        ("burst", "--arrivals 'burst' is not known; there are: trace, none, poisson, gamma, constant, ramp, closed"),
    ],
)
def test_a_mistake_is_named(text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_arrivals(text)
    assert complaint in str(caught.value)
