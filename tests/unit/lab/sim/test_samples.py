"""Workloads with several answers to a prompt, or a beam search: samples share blocks."""

import pytest

from chairlift.config.options.resolve import resolve
from chairlift.core.errors import InvalidConfig
from chairlift.lab.sim.profile import load_profile
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import load_items
from chairlift.telemetry.report import Report

SMALL = {"num_blocks": 300, "max_running": 64, "prefix_cache": False, "admission": "peak"}


def simulated(workload: str, **more: object) -> Report:
    settings = resolve({**SMALL, **more})
    return run(settings, load_profile("h200-llama2-7b"), load_items(workload), parse_arrivals("none"))


def test_samples_and_beams_take_less_memory_and_time_than_as_many_requests() -> None:
    apart = simulated("lengths:prompt=60,output=100,count=60")
    sampled = simulated("lengths:prompt=60,output=100,count=10,n=6")
    searched = simulated("lengths:prompt=60,output=100,count=10,n=6,beams=6")
    assert [each.finished for each in (apart, sampled, searched)] == [60] * 3
    assert apart.blocks_saved.max == 0 < sampled.blocks_saved.max < searched.blocks_saved.max
    assert searched.total_s < sampled.total_s < apart.total_s


def test_a_search_is_repeated_exactly() -> None:
    workload = "lengths:prompt=20,output=30,count=4,beams=3"
    assert simulated(workload) == simulated(workload)


@pytest.mark.parametrize(
    ("workload", "more", "told"),
    [
        ("lengths:prompt=9,output=9,count=1,n=4,beams=3", {}, "n must be at most beams, got '4'"),
        ("lengths:prompt=9,output=9,count=1,n=65", {}, "request 1 of the workload: n: 65 at once are more than"),
        ("lengths:prompt=9,output=9,count=1,n=2", {"replicas": 2}, "are simulated for one engine"),
    ],
)
def test_what_cannot_be_is_refused(workload: str, more: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        simulated(workload, **more)
