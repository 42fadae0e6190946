"""The simulator's error: the same workloads live on the embedded model and simulated, side by side.

    python benchmarks/simulation/fidelity.py --batch FILE --stream FILE [--repeats 3] [--profile-out FILE] [--json OUT]

`--batch`: its first 200 requests, all at once; the total time is compared. `--stream`: its first 200 with lengths
divided by 4, arriving as recorded but scaled to 0.8 of what the live engine served when all came at once; percentiles
of the time to the first token and per further token are compared. Live figures are the median of the repeats. Live and
simulated runs share everything but the runner and the clock.

The machine's speed drifts, so the calibration is not done at one moment but in turns with the live runs; it times
single steps only and sees nothing of the workloads. `--profile` uses an existing profile instead.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from chairlift.build import find_model, load
from chairlift.config.scheduler import Rules, make_scheduler
from chairlift.config.settings import Settings
from chairlift.lab.sim.calibration.calibrate import Calibrator, profile_of
from chairlift.lab.sim.profile import Profile, load_profile
from chairlift.lab.sim.run import run as simulated
from chairlift.lab.sim.run import run_live
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import read
from chairlift.telemetry.report import Report

COUNT, DIVIDE, LOAD, ROUNDS = 200, 4.0, 0.8, 4
Figures = dict[str, Callable[[Report], float]]
TOTAL: Figures = {"total time": lambda report: report.total_s}
TIMES: Figures = {
    "TTFT p50": lambda report: report.ttft_s.p50,
    "TTFT p90": lambda report: report.ttft_s.p90,
    "TPOT p50": lambda report: report.tpot_s.p50,
    "TPOT p90": lambda report: report.tpot_s.p90,
}


@dataclass(frozen=True, slots=True)
class Case:
    path: Path
    divide: float
    arrivals: str
    figures: Figures


class Live:
    """The embedded model, calibrated between the runs."""

    def __init__(self) -> None:
        self.model = find_model(Settings(preemption="swap"))  # with host blocks, to time swaps
        self.loaded = load(self.model)
        self.calibrator = Calibrator(self.loaded.runner, self.loaded.limits, self.loaded.num_host_blocks)

    def run(self, case: Case) -> Report:
        items = list(read(case.path, COUNT, case.divide))
        scheduler = make_scheduler(self.loaded.limits, Rules())
        report = run_live(self.loaded.runner, scheduler, items, parse_arrivals(case.arrivals))
        say(f"{case.path.name}, {case.arrivals}: {report.total_s:.1f} s")
        return report

    def calibrate(self) -> None:
        say("calibrating")
        self.calibrator.time(ROUNDS)

    def profile(self) -> Profile:
        found = self.calibrator.result()
        return profile_of("cpu-smollm2", self.model.name, self.model.config, self.loaded, found)


def stream_case(path: Path, live: Live) -> Case:
    capacity = statistics.median(live.run(Case(path, DIVIDE, "none", TIMES)).requests_per_s for _ in range(3))
    *_, last = read(path, COUNT)
    recorded = (COUNT - 1) / last.arrival_s
    scale = recorded / (LOAD * capacity)
    say(f"capacity {capacity:.3f} requests/s, recorded {recorded:.3f}: times scaled by {scale:.3f}")
    return Case(path, DIVIDE, f"trace:scale={scale:.4f}", TIMES)


def compared(case: Case, reports: list[Report], predicted: Report) -> Iterator[dict[str, object]]:
    for name, figure in case.figures.items():
        seen, guess = sorted(map(figure, reports)), figure(predicted)
        live = statistics.median(seen)
        off = guess / live - 1.0
        spread = f"{seen[0]:.3f} to {seen[-1]:.3f}"
        print(f"| {case.path.stem} | {name} | {live:.3f} s | {spread} | {guess:.3f} s | {off:+.1%} |", flush=True)
        yield {
            "workload": case.path.name, "arrivals": case.arrivals, "figure": name, "live": seen, "simulated": guess,
            "off": off,
        }  # fmt: skip


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=Path)
    parser.add_argument("--stream", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", help="simulate with this profile instead of calibrating")
    parser.add_argument("--profile-out", type=Path, help="write the calibrated profile to this file")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    live, cases = Live(), []
    if args.batch:
        live.run(Case(args.batch, 8.0, "none", TOTAL))  # warm
        cases.append(Case(args.batch, 1.0, "none", TOTAL))
    if args.stream:
        cases.append(stream_case(args.stream, live))
    reports: list[list[Report]] = [[] for _ in cases]
    for _ in range(args.repeats):
        for case, found in zip(cases, reports, strict=True):
            if not args.profile:
                live.calibrate()
            found.append(live.run(case))
    profile = load_profile(args.profile) if args.profile else live.profile()
    profile.check_model(live.model.name)
    if args.profile_out:
        profile.write(args.profile_out)
    say(profile.note)
    rows: list[dict[str, object]] = []
    print("| workload | figure | live, median | live, spread | simulated | off |\n|---|---|---|---|---|---|")
    for case, found in zip(cases, reports, strict=True):
        items = read(case.path, COUNT, case.divide)
        rows += compared(case, found, simulated(Settings(), profile, items, parse_arrivals(case.arrivals)))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
