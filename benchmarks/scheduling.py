"""What planning and committing cost per scheduled request, in microseconds of one core.

    python benchmarks/scheduling.py [--running 1024] [--steps 400]

A full house of decoding requests, with a runner that samples the same token for everybody at once; only the scheduler
is timed. Prints one line per running count: schedule, commit, both.
"""

import argparse
import time

from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepResult
from chairlift.core.policies.fcfs import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduler import Scheduler


def measure(running: int, steps: int) -> tuple[float, float]:
    limits = Limits(
        vocab_size=1000,
        max_model_len=4096,
        block_size=16,
        num_blocks=running * (steps // 16 + 4),
        max_running=running,
        max_step_tokens=running * 4,
    )
    scheduler = Scheduler(limits, Fcfs())
    params = SamplingParams(max_tokens=steps + 8)
    for i in range(running):
        request = Request(id=RequestId(i), prompt=(i, 2, 3), params=params, max_output=steps + 8, seed=0)
        scheduler.add((request,), 0.0)
    plan_s = commit_s = 0.0
    for step in range(steps + 2):
        start = time.perf_counter()
        plan = scheduler.schedule(0.0)
        planned = time.perf_counter()
        assert plan is not None
        result = StepResult(plan.step, [7] * sum(len(chunk.samples) for chunk in plan.chunks))
        ready = time.perf_counter()
        scheduler.commit(plan, result, 0.0)
        scheduler.take_events()
        if step >= 2:  # the prompts are done
            plan_s += planned - start
            commit_s += time.perf_counter() - ready
    return 1e6 * plan_s / (steps * running), 1e6 * commit_s / (steps * running)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--running", type=int, nargs="*", default=[32, 256, 1024])
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    print(f"{'running':>8} {'schedule us':>12} {'commit us':>10} {'both us':>8}")
    for running in args.running:
        schedule, commit = min((measure(running, args.steps) for _ in range(3)), key=sum)
        print(f"{running:>8} {schedule:>12.2f} {commit:>10.2f} {schedule + commit:>8.2f}")


if __name__ == "__main__":
    main()
