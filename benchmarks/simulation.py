"""What simulating costs: per scheduled request as the queue grows, for a whole workload, and in memory.

    python benchmarks/simulation.py queue [--png FILE]
    python benchmarks/simulation.py trace [--requests 1000 10000 100000]

`queue`: the waiting queue is kept at a length while 128 requests run; processor time of planning, committing, the
virtual step and the figures, per scheduled request, for every policy; outputs of 24 to 40 tokens, so that every order
admits about as often. `trace`: whole runs with Poisson arrivals at about
80 % of what the profile can serve, each in a process of its own: processor time and the most memory it held.
"""

import argparse
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.policies.known import POLICIES
from chairlift.core.scheduler import Scheduler
from chairlift.sim.clock import VirtualClock
from chairlift.sim.profile import load_profile
from chairlift.sim.run import run
from chairlift.sim.runner import SimRunner
from chairlift.telemetry.timeline import Timeline
from chairlift.workload.arrivals import parse_arrivals
from chairlift.workload.item import Item
from chairlift.workload.requests import requests_of

RUNNING, STEPS, REPEATS = 128, 200, 3
PROFILE = load_profile("h200-llama2-7b")


def similar_items() -> Iterator[Item]:
    rng = random.Random(0)
    while True:
        yield Item(
            prompt_tokens=16, output_tokens=rng.randint(24, 40), user=rng.choice("abcd"), priority=rng.randint(0, 3),
            deadline_s=rng.uniform(1.0, 100.0),
        )  # fmt: skip


def mixed_items(count: int) -> Iterator[Item]:
    """Short prompts; outputs of 65 tokens on average with a long tail."""
    rng = random.Random(0)
    for _ in range(count):
        output = min(504, max(1, round(rng.lognormvariate(3.75, 0.95))))
        yield Item(prompt_tokens=max(2, round(rng.lognormvariate(2.8, 0.6))), output_tokens=output)


def per_scheduled(policy: str, num_waiting: int) -> float:
    """Microseconds of processor time per scheduled request while so many wait."""
    limits = PROFILE.limits(Settings(max_running=RUNNING))
    clock, timeline = VirtualClock(), Timeline()
    runner = SimRunner(PROFILE.cost, limits.block_size, clock)
    engine = Engine(Scheduler(limits, POLICIES[policy]()), runner, clock, timeline)
    requests = (request for _, request in requests_of(similar_items(), limits, 0))
    spare = [next(requests) for _ in range(1000)]
    for _ in range(RUNNING + num_waiting):
        engine.add((next(requests),))
    engine.step()  # the seats are taken
    num_scheduled, seconds = 0, 0.0
    for _ in range(STEPS):
        started = time.process_time()
        while len(engine.scheduler.live) < RUNNING + num_waiting and spare:
            engine.add((spare.pop(),))
        engine.step()
        seconds += time.process_time() - started
        num_scheduled += len(engine.scheduler.running)
    return 1e6 * seconds / num_scheduled


def queue(args: argparse.Namespace) -> None:
    found = {
        policy: [min(per_scheduled(policy, length) for _ in range(REPEATS)) for length in args.lengths]
        for policy in POLICIES
    }
    print(f"{'microseconds per scheduled request':36}" + "".join(f"{length:>10}" for length in args.lengths))
    for policy, figures in found.items():
        print(f"{policy:36}" + "".join(f"{figure:>10.2f}" for figure in figures))
    if args.png:
        draw(args.lengths, found, args.png)


def draw(lengths: list[int], found: dict[str, list[float]], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for policy, figures in found.items():
        axes.plot(lengths, figures, marker="o", label=policy)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("requests waiting")
    axes.set_ylabel("microseconds per scheduled request")
    axes.set_title(f"Cost of simulating a step, {RUNNING} running")
    axes.legend(ncols=3, fontsize="small")
    figure.savefig(path, dpi=120)


def trace(args: argparse.Namespace) -> None:
    print(f"{'requests':>10} {'simulated s':>12} {'processor s':>12} {'us/token':>9} {'peak MiB':>9}")
    for count in args.requests:
        command = [sys.executable, __file__, "one", str(count)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


def one(args: argparse.Namespace) -> None:
    started = time.process_time()
    settings = Settings(max_running=RUNNING)
    report = run(settings, PROFILE, mixed_items(args.count), parse_arrivals("poisson:rate=200"))
    seconds = time.process_time() - started
    assert report.finished == args.count
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    per_token = 1e6 * seconds / report.output_tokens
    print(f"{args.count:>10} {report.total_s:>12.1f} {seconds:>12.2f} {per_token:>9.2f} {peak:>9.0f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    for name, command in (("queue", queue), ("trace", trace), ("one", one)):
        commands.add_parser(name).set_defaults(run=command)
    commands.choices["queue"].add_argument("--lengths", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    commands.choices["queue"].add_argument("--png")
    commands.choices["trace"].add_argument("--requests", type=int, nargs="+", default=[1000, 10_000, 100_000])
    commands.choices["one"].add_argument("count", type=int)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
