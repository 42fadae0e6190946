"""The cost of simulating: per scheduled request as the queue grows, for a whole workload, and in memory.

    python benchmarks/host/simulation.py queue [--svg FILE]
    python benchmarks/host/simulation.py memory [--requests 1000 10000 100000]
    python benchmarks/host/simulation.py workload FILE

`queue`: the waiting queue is kept at a length while 128 requests run; processor time of planning, committing, the
virtual step and the figures, per scheduled request, under every rule; outputs of 24 to 40 tokens, so that every order
admits about as often. `memory`: whole runs, each in a process of its own, the most memory it held and the most
requests that were live; once with Poisson arrivals at about 80 % of what the profile can serve, where few are live
however long the trace, and once with all requests present at the start. `workload`: a file's requests, all at once, 128
running, under every policy: processor time.

The machine may be shared, so the rules take turns within each repeat, and the least of many short windows counts.
"""

import argparse
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rules import every_rule

from chairlift.config.scheduler import Rules, make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.attributes import Attributes
from chairlift.core.engine import Engine
from chairlift.core.plan import StepPlan
from chairlift.core.policies.known import POLICIES
from chairlift.core.request import Request
from chairlift.lab.report.chart import PlotSeries, PlotStyle, plot
from chairlift.lab.report.frame import picture
from chairlift.lab.sim.profile import load_profile
from chairlift.lab.sim.run import run, simulate
from chairlift.lab.sim.runner import SimRunner, VirtualClock
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import read
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.requests import requests_of
from chairlift.telemetry.timeline import Timeline

RUNNING, REPEATS = 128, 5
STEPS, WINDOWS = 40, 5  # in 40 steps the running set changes about once
ARRIVALS = ("poisson:rate=200", "none")
PROFILE = load_profile("h200-llama2-7b")


def similar_items() -> Iterator[Item]:
    rng = random.Random(0)
    while True:
        yield Item(
            prompt_tokens=16,
            output_tokens=rng.randint(24, 40),
            attributes=Attributes(
                user=rng.choice("abcd"), priority=rng.randint(0, 3), deadline_s=rng.uniform(1.0, 100.0)
            ),
        )


def mixed_items(count: int) -> Iterator[Item]:
    """Short prompts; outputs of 65 tokens on average with a long tail."""
    rng = random.Random(0)
    for _ in range(count):
        output = min(504, max(1, round(rng.lognormvariate(3.75, 0.95))))
        yield Item(prompt_tokens=max(2, round(rng.lognormvariate(2.8, 0.6))), output_tokens=output)


class CountingRunner(SimRunner):
    num_scheduled = 0

    def submit(self, plan: StepPlan) -> None:
        self.num_scheduled += len(plan.chunks)
        super().submit(plan)


def per_scheduled(rules: Rules, num_waiting: int, requests: list[Request]) -> float:
    """Microseconds of processor time per scheduled request with a queue of this length."""
    limits = PROFILE.limits(Settings(max_running=RUNNING))
    clock, timeline = VirtualClock(), Timeline()
    runner = CountingRunner(PROFILE.cost, limits.block_size, clock)
    engine = Engine(make_scheduler(limits, rules), runner, clock, timeline)
    coming = iter(requests)
    for request in islice(coming, RUNNING + num_waiting):
        engine.add((request,))
    costs = []
    for _ in range(WINDOWS):
        runner.num_scheduled, started = 0, time.process_time()
        for _ in range(STEPS):
            while len(engine.scheduler.live) < RUNNING + num_waiting:
                engine.add((next(coming),))
            engine.step()
        costs.append(1e6 * (time.process_time() - started) / runner.num_scheduled)
    return min(costs[1:])  # in the first the running set fills


def queue(args: argparse.Namespace) -> None:
    cases, limits = every_rule(), PROFILE.limits(Settings(max_running=RUNNING))
    cases["--policy mlfq:starve=0.1"] = Rules(policy="mlfq:starve=0.1")  # most waiting requests rise
    items = islice(similar_items(), max(args.lengths) + RUNNING * (1 + STEPS * WINDOWS))
    requests = [request for _, request in requests_of(items, limits, 0)]
    found = {name: [float("inf")] * len(args.lengths) for name in cases}
    for _ in range(REPEATS):
        for name, rules in cases.items():
            costs = [per_scheduled(rules, length, requests) for length in args.lengths]
            found[name] = list(map(min, found[name], costs))
    print(f"{'microseconds per scheduled request':36}" + "".join(f"{length:>10}" for length in args.lengths))
    for name, figures in found.items():
        print(f"{name:36}" + "".join(f"{figure:>10.2f}" for figure in figures))
    if args.svg:
        draw(args.lengths, found, args.svg)


def draw(lengths: list[int], found: dict[str, list[float]], path: Path) -> None:
    """One chart for the rules of each kind."""
    charts = []
    for kind in ("--policy", "--prefill", "--admission"):
        of_kind = [(name, figures) for name, figures in found.items() if name.startswith(kind)]
        series = []
        for hue, (name, figures) in enumerate(of_kind):
            points = list(zip(map(float, lengths), figures, strict=True))
            look = "dashed" if hue >= 8 else ""  # there are eight hues
            series += [
                PlotSeries(points, name.split()[1], PlotStyle.LINE, hue, look),
                PlotSeries(points, hue=hue, look="large"),
            ]
        title = f"{kind}: microseconds per scheduled request"
        charts.append(plot(title, series, "requests waiting", from_zero="y", is_log=True))
    path.write_text(picture(f"Cost of simulating a step, {RUNNING} running", charts))


def memory(args: argparse.Namespace) -> None:
    print(f"{'arrivals':18} {'requests':>9} {'most live':>10} {'simulated s':>12} {'processor s':>12} {'peak MiB':>9}")
    for arrivals in ARRIVALS:
        for count in args.requests:
            command = [sys.executable, __file__, "one", arrivals, str(count)]
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


def one(args: argparse.Namespace) -> None:
    """A run in this process, which then ends."""
    started, most = time.process_time(), 0
    limits = PROFILE.limits(Settings(max_running=RUNNING))
    scheduler, timeline = make_scheduler(limits, Rules()), Timeline()

    def watch(now: float) -> None:
        nonlocal most
        most = max(most, len(scheduler.live))

    arriving = requests_of(parse_arrivals(args.arrivals).apply(mixed_items(args.count), 0), limits, 0)
    simulate(arriving, scheduler, PROFILE.cost, timeline, watch=watch)
    report, seconds = timeline.report(), time.process_time() - started
    assert report.finished == args.count
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{args.arrivals:18} {args.count:>9} {most:>10} {report.total_s:>12.1f} {seconds:>12.2f} {peak:>9.0f}")


def workload(args: argparse.Namespace) -> None:
    found: dict[str, tuple[float, int]] = {}
    for _ in range(REPEATS):
        for policy in POLICIES:
            started = time.process_time()
            settings = Settings(max_running=RUNNING, policy=policy)
            report = run(settings, PROFILE, read(args.path), parse_arrivals("none"))
            seconds = time.process_time() - started
            found[policy] = min(found.get(policy, (float("inf"), 0)), (seconds, report.steps))
    print(f"{args.path.name:36} {'processor s':>12} {'steps':>8}")
    for policy, (seconds, steps) in found.items():
        print(f"--policy {policy:27} {seconds:>12.2f} {steps:>8}")


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    for name, command in (("queue", queue), ("memory", memory), ("one", one), ("workload", workload)):
        commands.add_parser(name).set_defaults(run=command)
    commands.choices["queue"].add_argument("--lengths", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    commands.choices["queue"].add_argument("--svg", type=Path)
    commands.choices["memory"].add_argument("--requests", type=int, nargs="+", default=[1000, 10_000, 100_000])
    commands.choices["one"].add_argument("arrivals")
    commands.choices["one"].add_argument("count", type=int)
    commands.choices["workload"].add_argument("path", type=Path)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
