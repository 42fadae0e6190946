"""The fewest replicas that meet targets."""

from dataclasses import replace

import pytest

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.lab.tune.evaluate import Evaluator, Work
from chairlift.lab.tune.fleet import FleetWork, fleet_json, fleet_size, fleet_table
from chairlift.lab.tune.knobs import knobs_of
from chairlift.lab.tune.targets import Targets
from fakes.tuned import PROFILE, items


def work(slo: str, rate: float) -> FleetWork:
    return FleetWork(Settings(), PROFILE, items(120), f"poisson:rate={rate}", Targets.parse(slo))


def slo_of(work: FleetWork, count: int, room: float) -> str:
    """A limit that so many replicas meet, with that much room."""
    return f"ttft_p99={1e3 * room * work.simulated(count).ttft_s.p99}ms"


def test_the_fewest_are_enough_and_one_less_is_not() -> None:
    busy = work("ttft=1s", 1e5)
    for count in (1, 3, 5):
        asked = replace(busy, targets=Targets.parse(slo_of(busy, count, 1.001)))
        found = fleet_size(asked, 16, lambda text: None)
        assert found.fewest <= count
        assert asked.is_met(found.tried[found.fewest])
        assert found.fewest == 1 or not asked.is_met(found.tried[found.fewest - 1])
        *_, answer = fleet_table(asked, found)
        assert answer.startswith(f"{found.fewest} replica")
        assert fleet_json(asked, found)["replicas"] == found.fewest


def test_too_few_allowed_are_refused_with_what_the_most_reach() -> None:
    busy = work("ttft=1s", 1e5)
    asked = replace(busy, targets=Targets.parse(slo_of(busy, 8, 0.9)))
    with pytest.raises(InvalidConfig, match="no number of replicas up to 2 meets it: with 2, ttft_p99 is"):
        fleet_size(asked, 2, lambda text: None)


def test_a_fleet_is_tuned_by_its_router_too() -> None:
    settings = Settings(replicas=3)
    names = {knob.name for knob in knobs_of(settings, PROFILE, items())}
    assert "router" in names
    assert "router" not in {knob.name for knob in knobs_of(Settings(), PROFILE, items())}
    evaluator = Evaluator(Work(settings, {0: PROFILE}, tuple(items(60)), "poisson:rate=100000"))
    alone = Evaluator(Work(Settings(), {0: PROFILE}, tuple(items(60)), "poisson:rate=100000"))
    three, one = evaluator.evaluate({"router": "round-robin"}), alone.evaluate({})
    assert three.report is not None and one.report is not None
    assert three.report.e2e_s.mean < one.report.e2e_s.mean
