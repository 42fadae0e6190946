"""Steps planned at once against steps planned late, simulated: Llama-3-8B's shape on an H200.

    python benchmarks/simulation/planned_late.py --azure FILE --mooncake FILE [--noise 0.03] [--host 0.001]
        [--host-row 8e-7] [--runs 5]

The profile and the loads are those of `step_size.py`. The host takes a millisecond to plan and submit a step and 0.8 µs
for each of its rows, and the time of every step is scattered by 3 % (normally distributed); figures are means of five
runs, each scattered anew. `late`: steps that ended before the next was submitted. `idle`: the time the device waited
for it, as a share of all.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean

from step_size import PROFILE, at_rate

from chairlift.config.scheduler import make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.late_planning import AT_ONCE
from chairlift.core.plan import StepPlan, StepResult
from chairlift.lab.sim.cost import CostModel, StepShape
from chairlift.lab.sim.drive import drive
from chairlift.lab.sim.runner import SimRunner, VirtualClock
from chairlift.lab.sim.setup import rules_of
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import read
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.requests import requests_of
from chairlift.telemetry.report import Report, Spread
from chairlift.telemetry.timeline import Timeline


class PlansAtOnce(Engine):
    can_begin = False  # type: ignore[assignment]
    plan_at = AT_ONCE  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCost(CostModel):
    noise: float
    rng: random.Random = field(compare=False)

    def seconds(self, shape: StepShape) -> float:
        # Named, not super(): a dataclass with slots is made anew.
        return CostModel.seconds(self, shape) * max(0.5, self.rng.gauss(1.0, self.noise))


class CountingRunner(SimRunner):
    """Takes two plans and counts late steps."""

    def __init__(self, cost: CostModel, block_size: int, clock: VirtualClock) -> None:
        super().__init__(cost, block_size, clock, depth=2)
        self.num_late = self.num_steps = 0
        self.idle_s = 0.0

    def submit(self, plan: StepPlan) -> None:
        ready, is_behind = self._ready, bool(self._results)
        super().submit(plan)
        self.num_steps += 1
        self.idle_s += is_behind * max(0.0, self._clock.now() - ready)

    def collect(self) -> StepResult:
        result = super().collect()
        self.num_late += result.was_ready and bool(self._results)
        return result


def simulated(kind: type[Engine], items: list[Item], arrivals: str, cost: CostModel) -> tuple[Report, CountingRunner]:
    settings = Settings()
    limits = PROFILE.limits(settings)
    scheduler = make_scheduler(limits, rules_of(settings, PROFILE, limits))
    clock, timeline = VirtualClock(), Timeline(scheduler.pool)
    runner = CountingRunner(cost, limits.block_size, clock)
    arriving = requests_of(parse_arrivals(arrivals).apply(items, 0), limits, 0)
    drive(kind(scheduler, runner, clock, timeline), clock, arriving)
    return timeline.report(), runner


def show(name: str, items: list[Item], arrivals: str, args: argparse.Namespace) -> None:
    cost = replace(PROFILE.cost, start_s=args.host, start_row_s=args.host_row)
    plain = {each.name: getattr(cost, each.name) for each in fields(cost)}
    for planned, kind in (("at once", PlansAtOnce), ("late", Engine)):
        costs = [NoisyCost(**plain, noise=args.noise, rng=random.Random(seed)) for seed in range(args.runs)]
        runs = [simulated(kind, items, arrivals, cost) for cost in costs]
        ttft, tpot = _ms([report.ttft_s for report, _ in runs]), _ms([report.tpot_s for report, _ in runs])
        late = fmean(100 * runner.num_late / runner.num_steps for _, runner in runs)
        idle = fmean(100 * runner.idle_s / report.total_s for report, runner in runs)
        print(f"| {name} | {planned} | {ttft} | {tpot} | {late:.1f} % | {idle:.2f} % |", flush=True)


def _ms(spreads: Sequence[Spread]) -> str:
    return " / ".join(
        f"{1e3 * fmean(getattr(spread, share) for spread in spreads):.1f}" for share in ("p50", "p90", "p99")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--azure", type=Path, required=True)
    parser.add_argument("--mooncake", type=Path, required=True)
    parser.add_argument("--noise", type=float, default=0.03, metavar="SHARE")
    parser.add_argument("--host", type=float, default=0.001, metavar="SECONDS")
    parser.add_argument("--host-row", type=float, default=8e-7, metavar="SECONDS")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    azure, mooncake = list(read(args.azure, 1000, 1.0, 16_000)), list(read(args.mooncake, 400, 1.0, 15_000))
    print("| work | planned | TTFT p50 / p90 / p99, ms | TPOT, ms | late | idle |\n|---|---|---|---|---|---|")
    for name, items, rates in (("azure-conv", azure, (14.5, 22.0)), ("mooncake-conv", mooncake, (2.6, 3.9))):
        for rate in rates:
            show(f"{name}, {rate}/s", items, at_rate(items, rate), args)


if __name__ == "__main__":
    main()
