import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.tune.evaluate import Evaluator
from chairlift.lab.tune.targets import LatencyTarget, Targets
from fakes.tuned import work


def test_limits_are_read_in_either_unit() -> None:
    targets = Targets.parse("ttft_p99=500ms, tpot_p50=0.03s,e2e_mean=2")
    assert targets.each == (
        LatencyTarget("ttft", "p99", 0.5),
        LatencyTarget("tpot", "p50", 0.03),
        LatencyTarget("e2e", "mean", 2.0),
    )
    assert Targets.parse(str(targets)) == targets
    assert Targets.parse("ttft=500ms") == Targets.parse("ttft_max=0.5")  # each request, as others count them


def test_the_tightest_limit_counts() -> None:
    report = Evaluator(work(3)).evaluate({}).report
    assert report is not None
    half, twice = report.ttft_s.p99 / 2, report.e2e_s.mean * 2
    assert Targets.parse(f"ttft_p99={half:.6f}").used(report) == pytest.approx(2.0, rel=1e-3)
    assert Targets.parse(f"ttft_p99={half:.6f},e2e_mean={twice:.6f}").used(report) == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize(
    "text", ["", "=500ms", "ttft_p99", "ttft_p99=0ms", "ttft_p99=-1", "ttft_p75=1s", "speed_p50=1s", "ttft_p99=1h"]
)
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="ttft_p99=500ms"):
        Targets.parse(text)


def test_a_figure_may_be_limited_once() -> None:
    with pytest.raises(InvalidConfig, match="twice"):
        Targets.parse("ttft_p99=1s,ttft_p99=2s")
