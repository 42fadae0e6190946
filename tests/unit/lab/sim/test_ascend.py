"""The Ascend profiles against times that contest reports publish and that no fit has seen."""

from dataclasses import replace

import pytest

from chairlift.config.options.resolve import resolve
from chairlift.lab.sim.profile import load_profile
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import load_items
from chairlift.telemetry.report import Report


def simulated(profile: str, slots: int, rate: float) -> Report:
    settings = resolve({"preset": "llm-serving", "max_running": slots})
    return run(settings, load_profile(profile), load_items("contest"), parse_arrivals(f"constant:rate={rate}"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("slots", "rate", "reported_s"), [(50, 2, 798.23), (20, 2, 886.79), (64, 4, 791.0)])
def test_the_padding_engine_takes_about_as_long_as_reported(slots: int, rate: float, reported_s: float) -> None:
    assert simulated("ascend-910b4-llm-serving", slots, rate).total_s == pytest.approx(reported_s, rel=0.03)


def test_without_padding_the_machine_keeps_up_with_the_requests() -> None:
    report = simulated("ascend-910b4-llama2-7b", 50, 2)
    assert report.total_s == pytest.approx(750, rel=0.02)  # when the last request comes
    assert report.ttft_s.p90 < 1


@pytest.mark.slow
def test_orders_gain_where_empty_slots_are_paid() -> None:
    """As reports of the contest found: 40 s and more."""
    settings = resolve({"preset": "llm-serving", "num_blocks": 1023})
    profile, arrivals = load_profile("ascend-910b4-all-slots"), parse_arrivals("constant:rate=10")
    first_come, sorted_by_length = (
        run(replace(settings, policy=policy), profile, load_items("contest"), arrivals).total_s
        for policy in ("fcfs", "longest-first")
    )
    assert first_come == pytest.approx(759.0, rel=0.01)  # the published sums
    assert -55 < sorted_by_length - first_come < -40


@pytest.mark.parametrize("name", ["ascend-910b4-llm-serving", "ascend-910b4-llama2-7b", "ascend-910b4-all-slots"])
def test_the_profiles_say_that_they_were_not_measured(name: str) -> None:
    assert "not measured by us" in load_profile(name).note
