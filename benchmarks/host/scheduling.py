"""The cost of planning and committing per scheduled request, in microseconds of one core, under every rule.

    python benchmarks/host/scheduling.py [--running 1024] [--steps 200] [--repeats 5]

Two loads, on a runner that samples the same token for every request; only the scheduler is timed:

    decoding   the running set is full, none waits, none ends
    changing   as many again wait; requests end after 32 to 96 tokens and others take their place all the time

The machine may be shared, so the rules take turns within each repeat and the least of the repeats counts; `x` is the
cost of both relative to the first line.
"""

import argparse
import gc
import random
import time
from collections.abc import Iterator
from typing import NamedTuple

from rules import every_rule

from chairlift.config.scheduler import Rules
from chairlift.core.attributes import Attributes
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepResult
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler

WARM = 8  # steps before the clock starts
STEP_S = 0.02  # between two steps, for rules that use the time


class Cost(NamedTuple):
    """Microseconds per scheduled request."""

    schedule: float
    commit: float

    @property
    def both(self) -> float:
        return self.schedule + self.commit


def requests(outputs: tuple[int, int]) -> Iterator[tuple[Request]]:
    rng, number = random.Random(0), 0
    while True:
        number += 1
        output = rng.randint(*outputs)
        attributes = Attributes(
            user=rng.choice("abcdefgh"), priority=rng.randint(0, 3), deadline_s=rng.uniform(1.0, 100.0)
        )
        yield (
            Request(
                id=RequestId(number), prompt=(number % 1000, 2, 3), params=SamplingParams(max_tokens=output),
                max_output=output, seed=0, attributes=attributes,
            ),
        )  # fmt: skip


def scheduler_of(rules: Rules, running: int, max_output: int) -> Scheduler:
    limits = Limits(
        vocab_size=1000,
        max_model_len=4096,
        block_size=16,
        num_blocks=running * (max_output // 16 + 4),
        max_running=running,
        max_step_tokens=running * 4,
    )
    policy, prefill, admission = POLICIES[rules.policy](), PREFILLS[rules.prefill](), ADMISSIONS[rules.admission]()
    return Scheduler(limits, policy, prefill, admission, has_prefix_index=rules.prefix_cache)


def measure(rules: Rules, running: int, steps: int, is_changing: bool) -> Cost:
    outputs = (32, 96) if is_changing else (steps + WARM + 8,) * 2
    scheduler, source = scheduler_of(rules, running, outputs[1]), requests(outputs)
    crowd = running * (1 + is_changing)
    plan_s = commit_s = now = 0.0
    num_scheduled = 0
    gc.collect()
    for step in range(steps + WARM):
        while len(scheduler.live) < crowd:
            scheduler.add(next(source), now)
        start = time.process_time()
        plan = scheduler.schedule(now)
        planned = time.process_time()
        assert plan is not None
        result = StepResult(plan.step, [7] * sum(len(chunk.samples) for chunk in plan.chunks))
        now += STEP_S
        ready = time.process_time()
        scheduler.commit(plan, result, now)
        scheduler.take_events()
        if step >= WARM:
            plan_s += planned - start
            commit_s += time.process_time() - ready
            num_scheduled += len(plan.chunks)
    return Cost(1e6 * plan_s / num_scheduled, 1e6 * commit_s / num_scheduled)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--running", type=int, nargs="*", default=[1024])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--only", default="", help="time only the first rule and those with this text in their line (default: all)"
    )
    args = parser.parse_args()
    cases = every_rule() | {"--no-prefix-cache": Rules(prefix_cache=False)}
    cases = {name: rules for name, rules in cases.items() if rules == Rules() or args.only in name}
    for running in args.running:
        for crowd, is_changing in (("decoding", False), ("changing", True)):
            found: dict[str, Cost] = {}
            for _ in range(args.repeats):
                for name, rules in cases.items():
                    cost = measure(rules, running, args.steps, is_changing)
                    found[name] = min(found.get(name, cost), cost, key=lambda cost: cost.both)
            print(f"{f'{running} running, {crowd}':32} {'schedule us':>12} {'commit us':>10} {'both us':>8} {'x':>6}")
            first = next(iter(found.values())).both
            for name, cost in found.items():
                times = f"{cost.schedule:>12.2f} {cost.commit:>10.2f} {cost.both:>8.2f} {cost.both / first:>6.2f}"
                print(f"{name:32} {times}", flush=True)


if __name__ == "__main__":
    main()
