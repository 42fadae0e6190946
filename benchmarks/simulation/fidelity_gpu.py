"""The simulator's error on a GPU: a model of random weights is calibrated, then run live and simulated.

    python benchmarks/simulation/fidelity_gpu.py --model FOLDER --contest FILE --azure FILE --out FOLDER [--repeats 3]

The contest all at once, by default and longest-first with 256 running and 256 tokens a step: total time. `azure-conv`,
its first 200 requests of up to 4,096 tokens, as recorded but at 0.8 of what is served when all come at once
(simulated): percentiles of the time to the first token and per further token. Live figures are the median of the
repeats; live and simulated runs share everything but the runner and the clock. A config.json is enough of a model's
folder.

Writes the profile (profile.json), the figures (fidelity.json) and the steps of the first live run of each, with their
durations (steps-NAME.npz). Calibrated once, before the runs, with limits twice as wide as the default's.
"""

import argparse
import gc
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fidelity import TIMES, TOTAL, Case, compared, say

from chairlift.build import find_model, load, rules_of
from chairlift.config.scheduler import make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Runner
from chairlift.lab.sim.calibration.calibrate import Calibrator, profile_of
from chairlift.lab.sim.profile import Profile
from chairlift.lab.sim.run import run as simulated
from chairlift.lab.sim.run import run_live
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import read
from chairlift.lab.workload.item import Item
from chairlift.telemetry.report import Report

COUNT, LONGEST, LOAD = 200, 4096, 0.8
RUNNING, STEP_TOKENS, WIDER = 512, 4096, 2
ROUNDS = 3
PLAIN = Settings(prefix_cache=False)
TUNED = replace(PLAIN, policy="longest-first", max_running=256, max_step_tokens=256)


@dataclass(slots=True)
class Recorder:
    """A runner that notes its steps and when the device finished them."""

    runner: Runner
    steps: list[dict[str, Any]] = field(default_factory=list)
    in_flight: list[dict[str, Any]] = field(default_factory=list)

    @property
    def depth(self) -> int:
        return self.runner.depth

    def submit(self, plan: StepPlan) -> None:
        step: dict[str, Any] = {
            "starts": np.array([chunk.start for chunk in plan.chunks], np.int32),
            "counts": np.array([chunk.count for chunk in plan.chunks], np.int32),
            "samples": sum(len(chunk.samples) for chunk in plan.chunks),
            "submitted": time.perf_counter(),
        }
        self.runner.submit(plan)
        step["launched"] = time.perf_counter()
        if torch.cuda.is_available():
            step["done"] = torch.cuda.Event(enable_timing=True)
            step["done"].record()
        self.in_flight.append(step)
        self.steps.append(step)

    def collect(self) -> StepResult:
        step = self.in_flight.pop(0)
        step["asked"] = time.perf_counter()
        result = self.runner.collect()
        step["collected"] = time.perf_counter()
        return result

    def write(self, path: Path) -> None:
        first = self.steps[0].get("done")
        ends = [0.0 if first is None else 1e-3 * first.elapsed_time(step["done"]) for step in self.steps]
        times = [[step[name] for name in ("submitted", "launched", "asked", "collected")] for step in self.steps]
        np.savez_compressed(
            path,
            lengths=[len(step["starts"]) for step in self.steps],
            starts=np.concatenate([step["starts"] for step in self.steps]),
            counts=np.concatenate([step["counts"] for step in self.steps]),
            samples=[step["samples"] for step in self.steps],
            times=times,
            ends=ends,
        )


class Gpu:
    """The model, loaded once with wide limits; runs may have narrower ones."""

    def __init__(self, args: argparse.Namespace) -> None:
        wide = {"max_running": WIDER * RUNNING, "max_step_tokens": WIDER * STEP_TOKENS}
        settings = Settings(
            model=args.model, load_format="dummy", device=args.device, preemption="swap", host_memory=4 << 30, **wide
        )
        self.out, self.repeats = args.out, args.repeats
        self.model = find_model(settings)
        self.loaded = load(self.model)
        # As serve does.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        say(f"loaded with {self.loaded.kernels} kernels")

    def calibrated(self) -> Profile:
        started = time.monotonic()
        calibrator = Calibrator(self.loaded.runner, self.loaded.limits, self.loaded.num_host_blocks)
        calibrator.time(ROUNDS)
        found = calibrator.result()
        profile = profile_of("h200-llama2-7b-measured", "Llama-2-7B", self.model.config, self.loaded, found)
        profile = replace(profile, max_running=RUNNING, max_step_tokens=STEP_TOKENS)
        profile.write(self.out / "profile.json")
        say(f"calibrated in {time.monotonic() - started:.0f} s: {profile.note}")
        return profile

    def runs(self, name: str, settings: Settings, items: list[Item], arrivals: str) -> Iterator[Report]:
        self._run(self.loaded.runner, settings, items[: len(items) // 3], "none")  # captures graphs
        recorder = Recorder(self.loaded.runner)
        yield self._run(recorder, settings, items, arrivals)
        recorder.write(self.out / f"steps-{name}.npz")
        for _ in range(self.repeats - 1):
            yield self._run(self.loaded.runner, settings, items, arrivals)

    def _run(self, runner: Runner, settings: Settings, items: list[Item], arrivals: str) -> Report:
        limits = replace(
            self.loaded.limits,
            max_running=settings.max_running or RUNNING,
            max_step_tokens=settings.max_step_tokens or STEP_TOKENS,
        )
        scheduler = make_scheduler(limits, rules_of(settings, self.loaded))
        gc.collect()
        return run_live(runner, scheduler, items, parse_arrivals(arrivals))


def scaled(items: list[Item], profile: Profile) -> str:
    rate = LOAD * simulated(PLAIN, profile, items, parse_arrivals("none")).requests_per_s
    say(f"{rate:.2f} requests/s are {LOAD} of capacity")
    return f"trace:scale={(len(items) - 1) / ((items[-1].arrival_s - items[0].arrival_s) * rate):.6f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--contest", type=Path, required=True)
    parser.add_argument("--azure", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    gpu = Gpu(args)
    profile = gpu.calibrated()
    azure, contest = list(read(args.azure, COUNT, 1.0, LONGEST)), list(read(args.contest))
    cases = [
        ("azure", PLAIN, azure, Case(args.azure, 1.0, scaled(azure, profile), TIMES)),
        ("contest", PLAIN, contest, Case(args.contest, 1.0, "none", TOTAL)),
        ("contest-tuned", TUNED, contest, Case(args.contest, 1.0, "none", TOTAL)),
    ]
    rows: list[dict[str, object]] = []
    print(
        "| workload | figure | live, median | live, spread | simulated | off |\n|---|---|---|---|---|---|", flush=True
    )
    for name, settings, items, case in cases:
        reports = list(gpu.runs(name, settings, items, case.arrivals))
        guess = simulated(settings, profile, items, parse_arrivals(case.arrivals))
        rows += [{"run": name, **row} for row in compared(case, reports, guess)]
        (args.out / "fidelity.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
