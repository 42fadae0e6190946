"""How near the simulator comes: the same workloads live on the embedded model and simulated, side by side.

    chairlift calibrate --out here.json
    python benchmarks/fidelity.py --profile here.json --batch FILE --stream FILE [--repeats 3] [--json OUT]

`--batch`: its first 200 requests, all at once; the total time is compared. `--stream`: its first 200 with lengths
divided by 4, arriving as recorded but scaled to 0.8 of what the live engine served when all came at once; percentiles
of the time to the first token and per further token are compared. Live figures are the median of the repeats. Live and
simulated runs share everything but the runner and the clock.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from chairlift.build import find_model, load
from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.sim.drive import drive
from chairlift.sim.profile import Profile, load_profile
from chairlift.sim.run import run as simulated
from chairlift.sim.setup import make_scheduler
from chairlift.telemetry.lines import Rules
from chairlift.telemetry.report import Report
from chairlift.telemetry.timeline import Timeline
from chairlift.workload.arrivals import parse_arrivals
from chairlift.workload.file import read
from chairlift.workload.requests import requests_of

COUNT, DIVIDE, LOAD = 200, 4.0, 0.8
Figures = dict[str, Callable[[Report], float]]
TOTAL: Figures = {"total time": lambda report: report.total_s}
TIMES: Figures = {
    "TTFT p50": lambda report: report.ttft_s.p50,
    "TTFT p90": lambda report: report.ttft_s.p90,
    "TPOT p50": lambda report: report.tpot_s.p50,
    "TPOT p90": lambda report: report.tpot_s.p90,
}


class SleepingClock:
    def __init__(self) -> None:
        self._start = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._start

    def advance_to(self, moment: float) -> None:
        time.sleep(max(0.0, moment - self.now()))


class Both:
    """One model live, and its profile."""

    def __init__(self, profile: Profile) -> None:
        self._model = find_model(Settings())
        profile.check_model(self._model.name)
        self._profile = profile
        self._loaded = load(self._model)

    def live(self, path: Path, divide: float, arrivals: str) -> Report:
        limits, clock, timeline = self._loaded.limits, SleepingClock(), Timeline()
        # Requests are made beforehand: making prompts is no part of serving.
        spec = parse_arrivals(arrivals)
        arriving = list(requests_of(spec.apply(read(path, COUNT, divide), 0), limits, 0))
        clock = SleepingClock()
        drive(Engine(make_scheduler(limits, Rules()), self._loaded.runner, clock, timeline), clock, arriving)
        return timeline.report()

    def simulated(self, path: Path, divide: float, arrivals: str) -> Report:
        return simulated(Settings(), self._profile, read(path, COUNT, divide), parse_arrivals(arrivals))

    def compare(
        self, path: Path, divide: float, arrivals: str, figures: Figures, repeats: int
    ) -> list[dict[str, object]]:
        predicted = self.simulated(path, divide, arrivals)
        lives = []
        for turn in range(repeats):
            lives.append(self.live(path, divide, arrivals))
            print(f"{path.name}, {arrivals}: {turn + 1} of {repeats}, {lives[-1].total_s:.1f} s", file=sys.stderr)
        rows: list[dict[str, object]] = []
        for name, figure in figures.items():
            seen, guess = sorted(map(figure, lives)), figure(predicted)
            live = statistics.median(seen)
            off = guess / live - 1.0
            rows.append(
                {
                    "workload": path.name,
                    "arrivals": arrivals,
                    "figure": name,
                    "live": seen,
                    "simulated": guess,
                    "off": off,
                }
            )
            spread = f"{seen[0]:.3f} to {seen[-1]:.3f}"
            print(f"| {path.name} | {name} | {live:.3f} s | {spread} | {guess:.3f} s | {off:+.1%} |", flush=True)
        return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", required=True)
    parser.add_argument("--batch", type=Path)
    parser.add_argument("--stream", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    both, rows = Both(load_profile(args.profile)), []
    print("| workload | figure | live, median | live, spread | simulated | off |\n|---|---|---|---|---|---|")
    if args.batch:
        both.live(args.batch, 8.0, "none")  # warm
        rows += both.compare(args.batch, 1.0, "none", TOTAL, args.repeats)
    if args.stream:
        capacity = both.live(args.stream, DIVIDE, "none").requests_per_s
        *_, last = read(args.stream, COUNT)
        recorded = (COUNT - 1) / last.arrival_s
        scale = recorded / (LOAD * capacity)
        print(f"capacity {capacity:.3f} requests/s, recorded {recorded:.3f}: scale {scale:.3f}", file=sys.stderr)
        rows += both.compare(args.stream, DIVIDE, f"trace:scale={scale:.4f}", TIMES, args.repeats)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
