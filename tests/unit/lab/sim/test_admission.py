"""What admitting by the predicted peak costs under each order; docs/when-which-policy.md advises by it."""

import pytest

from chairlift.config.settings import Settings
from chairlift.lab.sim.profile import load_profile
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import load_items
from chairlift.telemetry.report import Report


def simulated(policy: str, admission: str) -> Report:
    settings = Settings(policy=policy, admission=admission, max_running=64, num_blocks=300)
    items = load_items("lengths:prompt=16-64,output=100-300,count=150")
    return run(settings, load_profile("h200-llama2-7b"), items, parse_arrivals("none"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("policy", "least", "most"), [("fcfs", 0.95, 1.05), ("longest-first", 1.15, 1.5), ("shortest-first", 1.15, 1.5)]
)
def test_peak_runs_fewer_where_an_order_brings_like_lengths_together(policy: str, least: float, most: float) -> None:
    prompt, peak = simulated(policy, "prompt"), simulated(policy, "peak")
    assert least < peak.total_s / prompt.total_s < most
    assert peak.preemptions < prompt.preemptions / 5  # what it promises, whatever the order
