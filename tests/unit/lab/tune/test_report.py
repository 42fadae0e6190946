"""The headline of a tuning, from figures that are made up."""

from types import SimpleNamespace
from typing import Any

import pytest

from chairlift.lab.tune.report import _latencies


def report(mean_s: float, ttft_p99_s: float) -> Any:
    return SimpleNamespace(e2e_s=SimpleNamespace(mean=mean_s), ttft_s=SimpleNamespace(p99=ttft_p99_s))


@pytest.mark.parametrize(
    ("found", "default", "words"),
    [
        ((1.0, 0.5), (2.0, 0.5), " at a mean latency of 1 s instead of 2 s"),
        ((1.2601, 0.5), (1.2599, 0.6), " at the same mean latency of 1.26 s"),
        (
            (1.26, 0.9),
            (1.26, 0.5),
            " at the same mean latency of 1.26 s, but a TTFT p99 of 0.9 s instead of 0.5 s",
        ),
    ],
)
def test_first_tokens_that_come_later_are_not_hidden(
    found: tuple[float, float], default: tuple[float, float], words: str
) -> None:
    assert _latencies(report(*found), report(*default)) == words
