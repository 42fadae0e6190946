"""Limits that suit several workloads at once, simulated: the basis of the shipped defaults.

    python benchmarks/tune/defaults.py --device h200|cpu --contest FILE --azure FILE --mooncake FILE [--json OUT]

First come first served, mixed steps: a default must not need to know lengths. Every running limit, step budget and
admission rule of a grid, on: the contest (all at once), azure-conv and mooncake-conv (each all at once, and as recorded
but at 0.8 of what the present defaults serve), the first 400 requests of the latter two that fit 4,096 tokens, lengths
divided where they would not fit the model. A setting's score is the geometric mean over the five of what it gains on
the present defaults: throughput where all come at once, the inverse of the mean latency otherwise.
"""

import argparse
import itertools
import json
import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from chairlift.config.settings import Settings
from chairlift.lab.sim.profile import load_profile
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import read
from chairlift.lab.workload.item import Item
from chairlift.telemetry.report import Report

COUNT, LONGEST, LOAD = 400, 4096, 0.8
PROFILES = {"h200": "h200-llama2-7b", "cpu": "cpu-smollm2"}
RUNNING = {"h200": (128, 256, 384, 512, 768, 1024), "cpu": (16, 32, 64, 128, 256)}
BUDGETS = {"h200": (256, 512, 1024, 2048, 4096, 8192), "cpu": (64, 128, 256, 512, 1024)}
ADMISSIONS = ("prompt", "peak")
DIVIDE = {"h200": {"azure": 1.0, "mooncake": 32.0}, "cpu": {"azure": 4.0, "mooncake": 32.0}}


class Case(NamedTuple):
    name: str
    path: Path
    limit: int
    divide: float
    arrivals: str

    def run(self, settings: Settings, profile: str) -> Report:
        return run(settings, load_profile(profile), self.items(), parse_arrivals(self.arrivals))

    def items(self) -> list[Item]:
        return list(read(self.path, self.limit, self.divide, LONGEST))


def cases(args: argparse.Namespace, profile: str) -> Iterator[Case]:
    yield Case("contest, at once", args.contest, 1500 if args.device == "h200" else 300, 1.0, "none")
    for name, path in (("azure", args.azure), ("mooncake", args.mooncake)):
        at_once = Case(f"{name}, at once", path, COUNT, DIVIDE[args.device][name], "none")
        yield at_once
        items = at_once.items()
        rate = LOAD * at_once.run(Settings(), profile).requests_per_s
        scale = (len(items) - 1) / ((items[-1].arrival_s - items[0].arrival_s) * rate)
        yield at_once._replace(name=f"{name}, at {LOAD} of capacity", arrivals=f"trace:scale={scale:.5f}")


def settings(device: str) -> Iterator[Settings]:
    for running, budget, admission in itertools.product(RUNNING[device], BUDGETS[device], ADMISSIONS):
        if running <= budget:
            yield Settings(max_running=running, max_step_tokens=budget, admission=admission)


def figures(job: tuple[Settings, Case], profile: str) -> float:
    """The value to minimize."""
    asked, case = job
    report = case.run(asked, profile)
    return report.total_s if case.arrivals == "none" else report.e2e_s.mean


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=tuple(PROFILES), required=True)
    parser.add_argument("--profile", help="profile to use (default: the built-in one)")
    for name in ("contest", "azure", "mooncake"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    profile = args.profile or PROFILES[args.device]
    usual = load_profile(profile).limits(Settings())
    every = list(cases(args, profile))
    present = replace(Settings(), max_running=usual.max_running, max_step_tokens=usual.max_step_tokens)
    tried = list(dict.fromkeys([present, *settings(args.device)]))
    with ProcessPoolExecutor(2) as workers:
        found = list(workers.map(partial(figures, profile=profile), itertools.product(tried, every), chunksize=4))
    costs = [found[i : i + len(every)] for i in range(0, len(found), len(every))]
    rows = []
    for asked, each in zip(tried, costs, strict=True):
        gains = [base / own for base, own in zip(costs[0], each, strict=True)]
        rows.append((math.prod(gains) ** (1 / len(gains)), asked, gains))
    rows.sort(key=lambda row: -row[0])
    print(
        f"profile {profile}; the present defaults: {usual.max_running} running, {usual.max_step_tokens} tokens a step\n"
    )
    print("| running | step tokens | admission | mean gain | " + " | ".join(case.name for case in every) + " |")
    print("|---|---|---|---|" + "---|" * len(every))
    shown = [*rows[:10], next(row for row in rows if row[1] is present)]
    for score, asked, gains in shown:
        cells = " | ".join(f"{gain - 1:+.1%}" for gain in gains)
        print(f"| {asked.max_running} | {asked.max_step_tokens} | {asked.admission} | {score - 1:+.1%} | {cells} |")
    if args.json:
        out = [
            {"max_running": s.max_running, "max_step_tokens": s.max_step_tokens, "admission": s.admission,
             "gain": score, "gains": dict(zip([c.name for c in every], gains, strict=True))}
            for score, s, gains in rows
        ]  # fmt: skip
        lines = ",\n  ".join(map(json.dumps, out))
        args.json.write_text(f'{{"profile": {json.dumps(profile)}, "rows": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    main()
