"""The measuring of front ends, small: its engine without a model speaks to the real ones."""

import pytest

from fakes.benchmark import load_benchmark


@pytest.mark.nightly
def test_the_shipped_front_end_can_be_measured() -> None:
    benchmark = load_benchmark("front_end/run")
    turn = benchmark.measure("shipped", benchmark.Load(requests=20, tokens=8, running=16, step_ms=2.0), count=2)
    assert turn.rate > 0
