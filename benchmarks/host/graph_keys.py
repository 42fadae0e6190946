"""How often a step of a workload finds its graph, by simulating; needs no GPU.

    python benchmarks/host/graph_keys.py --workload FILE [--arrivals poisson:rate=20] [--profile h200-llama2-7b]

The scheduler runs on a virtual clock. Its plans are laid out as for a GPU, and keys are captured when they come, as
`runner/cuda/step/graphs.py` does; the likely ones are captured before. `cost`: what padding adds to the time of steps,
by the profile. `first minute`: captures. Steps that are not captured do not count.
"""

import argparse
from collections import OrderedDict
from dataclasses import replace

from chairlift.cli.inputs.workload import add_workload_flags, items_from, profile_from
from chairlift.config.scheduler import make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan
from chairlift.core.ports import Unobserved
from chairlift.lab.sim.cost import CostModel, shape_of
from chairlift.lab.sim.run import simulate
from chairlift.lab.sim.setup import rules_of
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.requests import requests_of
from chairlift.runner.cuda.step.graph_key import MAX_GRAPHS, GraphKey, GraphKeys
from chairlift.runner.cuda.step.host import HostPart

STRETCHES = ((0, 200), (200, 1000), (1000, 1 << 40))  # of steps


class Graphs(Unobserved):
    def __init__(self, limits: Limits, cost: CostModel, is_prepared: bool) -> None:
        keys = GraphKeys(limits, has_groups=True, exact=False)
        self._keys = keys
        self._cost = cost
        self._host = HostPart(2 * limits.max_running + 15, -(-limits.max_model_len // limits.block_size), 16)
        self._captured = OrderedDict.fromkeys(keys.likely if is_prepared else ())
        self.seen: set[GraphKey] = set()
        self.found: list[tuple[float, bool]] = []  # (when, whether its graph was there)
        self.num_large = self.num_mixed = 0
        self._padding_s = self._steps_s = 0.0

    def planned(self, plan: StepPlan | None, now: float) -> None:
        if plan is None:
            return
        step = self._host.input_of(plan)
        self._steps_s += self._cost.seconds(shape_of(plan, 16, self._cost.max_row_pairs))
        key = self._keys.of(step.num_tokens, step.num_short, step.max_context, len(step.tiles), step.num_samples)
        if key is None:
            self.num_large += 1
            return
        self.num_mixed += key.num_tiles > 0
        is_there = key in self._captured
        self._captured[key] = None
        self._captured.move_to_end(key)
        if len(self._captured) > MAX_GRAPHS:
            self._captured.popitem(last=False)
        self.seen.add(key)
        self.found.append((now, is_there))
        self._padding_s += self._cost.linear_s(key.num_tokens) - self._cost.linear_s(step.num_tokens)

    def row(self) -> str:
        shares = []
        for low, high in STRETCHES:
            hits = [is_there for _, is_there in self.found[low:high]]
            shares.append(f"{sum(hits) / len(hits):.1%}" if hits else "")
        first = [each for each in self.found if each[0] < self.found[0][0] + 60.0]
        captures = sum(not is_there for _, is_there in first)
        return (
            f"{len(self.found)} | {self.num_mixed} | {self.num_large} | {len(self.seen)} | {' | '.join(shares)} | "
            f"{self._padding_s / self._steps_s:.1%} | {captures} of {len(first)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    add_workload_flags(parser)
    options = parser.parse_args()
    profile = profile_from(options)
    settings, cost = Settings(), replace(profile.cost, launch_s=0.0)  # graphs are not launched kernel by kernel
    limits = profile.limits(settings)
    arrivals = parse_arrivals(options.arrivals)
    print(
        "| prepared | steps | with prompts | not captured | keys | to 200 | to 1,000 | later | cost | first minute |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )
    for is_prepared in (False, True):
        graphs = Graphs(limits, cost, is_prepared)
        scheduler = make_scheduler(limits, rules_of(settings, profile, limits))
        arriving = requests_of(arrivals.apply(items_from(options), 0), limits, 0)
        simulate(arriving, scheduler, cost, graphs, arrivals.concurrency, profile.depth)
        print(f"| {'yes' if is_prepared else 'no'} | {graphs.row()} |", flush=True)


if __name__ == "__main__":
    main()
