"""Steps planned at once against steps planned late, simulated: Llama-3-8B's shape on an H200.

    python benchmarks/simulation/planned_late.py --azure FILE --mooncake FILE [--noise 0.03] [--host 0.001]

The profile and the loads are those of `step_size.py`. The host takes a millisecond to plan and submit a step, and the
time of every step is scattered by 3 % (normally distributed). `late`: steps that ended before the next was submitted.
`idle`: the time the device waited for the host while there was work, as a share of all.
"""

import argparse
import random
from dataclasses import replace
from pathlib import Path

from step_size import PROFILE, at_rate

from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.late_planning import AT_ONCE
from chairlift.core.plan import StepPlan, StepResult
from chairlift.sim.clock import VirtualClock
from chairlift.sim.cost import CostModel, StepShape
from chairlift.sim.drive import drive
from chairlift.sim.runner import SimRunner
from chairlift.sim.setup import make_scheduler, rules_of
from chairlift.telemetry.report import Spread
from chairlift.telemetry.timeline import Timeline
from chairlift.workload.arrivals import parse_arrivals
from chairlift.workload.file import read
from chairlift.workload.item import Item
from chairlift.workload.requests import requests_of


class PlansAtOnce(Engine):
    plan_at = AT_ONCE  # type: ignore[assignment]

    def begin(self) -> None:
        pass


class NoisyRunner(SimRunner):
    """Scatters the time of steps and counts the late ones."""

    def __init__(self, cost: CostModel, block_size: int, clock: VirtualClock, noise: float) -> None:
        super().__init__(_Noisy(cost, noise), block_size, clock, depth=2)  # type: ignore[arg-type]
        self.num_late = self.num_steps = 0
        self.idle_s = 0.0

    def submit(self, plan: StepPlan) -> None:
        before, has_step = self._ready, bool(self._results)
        super().submit(plan)
        self.num_steps += 1
        if has_step:
            self.idle_s += max(0.0, self._clock.now() - before)

    def collect(self) -> StepResult:
        result = super().collect()
        self.num_late += result.was_ready and bool(self._results)
        return result


class _Noisy:
    def __init__(self, cost: CostModel, noise: float) -> None:
        self._cost, self._noise, self._rng = cost, noise, random.Random(0)

    def __getattr__(self, name: str) -> object:
        return getattr(self._cost, name)

    def seconds(self, shape: StepShape) -> float:
        return self._cost.seconds(shape) * max(0.5, self._rng.gauss(1.0, self._noise))


def show(name: str, items: list[Item], arrivals: str, noise: float, host_s: float) -> None:
    settings = Settings()
    limits = PROFILE.limits(settings)
    for planning, kind in (("at once", PlansAtOnce), ("late", Engine)):
        scheduler = make_scheduler(limits, rules_of(settings, PROFILE, limits))
        clock, timeline = VirtualClock(), Timeline(scheduler.pool)
        runner = NoisyRunner(replace(PROFILE.cost, start_s=host_s), limits.block_size, clock, noise)
        arriving = requests_of(parse_arrivals(arrivals).apply(items, 0), limits, 0)
        drive(kind(scheduler, runner, clock, timeline), clock, arriving)
        report = timeline.report()
        ttft, tpot = _ms(report.ttft_s), _ms(report.tpot_s)
        late, idle = runner.num_late / runner.num_steps, runner.idle_s / report.total_s
        print(f"| {name} | {planning} | {ttft} | {tpot} | {100 * late:.1f} % | {100 * idle:.2f} % |", flush=True)


def _ms(spread: Spread) -> str:
    return " / ".join(f"{1e3 * value:.1f}" for value in (spread.p50, spread.p90, spread.p99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--azure", type=Path, required=True)
    parser.add_argument("--mooncake", type=Path, required=True)
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--host", type=float, default=0.001, metavar="SECONDS")
    args = parser.parse_args()
    azure, mooncake = list(read(args.azure, 1000, 1.0, 16_000)), list(read(args.mooncake, 400, 1.0, 15_000))
    print("| work | planned | TTFT p50 / p90 / p99, ms | TPOT, ms | late | idle |\n|---|---|---|---|---|---|")
    for name, items, rates in (("azure-conv", azure, (14.5, 22.0)), ("mooncake-conv", mooncake, (2.6, 3.9))):
        for rate in rates:
            show(f"{name}, {rate}/s", items, at_rate(items, rate), args.noise, args.host)


if __name__ == "__main__":
    main()
