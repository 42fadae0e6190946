"""How many replicas a workload needs to meet targets: the fewest that do, found by bisection in the simulator.

Always: the answer was simulated and meets the targets, and one replica less does not. More replicas are taken to be no
worse than fewer.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.lab.sim.profile import Profile
from chairlift.lab.sim.run import run
from chairlift.lab.tune.targets import Targets
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.item import Item
from chairlift.telemetry.report import Report, columns

_FIGURES = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class FleetWork:
    settings: Settings
    profile: Profile
    items: Sequence[Item]
    arrivals: str
    targets: Targets
    seed: int = 0

    def simulated(self, num_replicas: int) -> Report:
        settings = replace(self.settings, replicas=num_replicas)
        return run(settings, self.profile, self.items, parse_arrivals(self.arrivals), self.seed)

    def is_met(self, report: Report) -> bool:
        return self.targets.used(report) <= 1.0


@dataclass(frozen=True, slots=True)
class FleetSize:
    fewest: int
    tried: dict[int, Report]  # by replicas, rising


def fleet_size(work: FleetWork, most: int, say: Callable[[str], None]) -> FleetSize:
    """Raises InvalidConfig when `most` replicas are not enough."""
    tried: dict[int, Report] = {}

    def is_enough(count: int) -> bool:
        say(f"simulating {count} replica{'s' * (count > 1)}")
        tried[count] = work.simulated(count)
        return work.is_met(tried[count])

    low, high = 0, 1  # not enough, and next to try
    while not is_enough(high):
        if high == most:
            raise InvalidConfig(f"--slo {work.targets}: {_missed(work.targets, most, tried[most])}")
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return FleetSize(high, dict(sorted(tried.items())))


def _missed(targets: Targets, most: int, report: Report) -> str:
    worst = max(targets.each, key=lambda target: target.used(report))
    value = f"{worst.figure}_{worst.share} is {1e3 * worst.value_s(report):.4g} ms"
    return f"no number of replicas up to {most} meets it: with {most}, {value} (--max-replicas allows more)"


def fleet_table(work: FleetWork, found: FleetSize) -> Iterator[str]:
    """Lines for a terminal: what was tried, then the answer."""
    titles = [f"{figure} {share} ms" for figure in _FIGURES for share in ("p50", "p99")]
    yield columns("replicas", *titles, "cached tok", "meets it", first=10, width=13)
    for count, report in found.tried.items():
        spreads = [getattr(report, f"{figure}_s") for figure in _FIGURES]
        cells = [f"{1e3 * getattr(spread, share):.1f}" for spread in spreads for share in ("p50", "p99")]
        verdict = "yes" if work.is_met(report) else "no"
        yield columns(str(count), *cells, str(report.cache_hit_tokens), verdict, first=10, width=13)
    yield ""
    num_devices = found.fewest * work.settings.tensor_parallel
    fewest = f"{found.fewest} replica{'s' * (found.fewest > 1)} of {work.profile.model}"
    yield f"{fewest}: {num_devices} x {work.profile.device} meet {work.targets}"


def fleet_json(work: FleetWork, found: FleetSize) -> dict[str, Any]:
    return {
        "replicas": found.fewest,
        "devices": found.fewest * work.settings.tensor_parallel,
        "slo": str(work.targets),
        "tried": [{"replicas": count, "report": report.to_json()} for count, report in found.tried.items()],
    }
