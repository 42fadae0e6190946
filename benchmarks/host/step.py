"""The host's work for a step of decodes, in milliseconds of one core; needs no GPU.

    python benchmarks/host/step.py [--running 1024] [--steps 96] [--repeats 5]

Everything of a step but the launch: planning it, making its step input, and committing its tokens, two in flight. The
first steps, with the prompts, do not count. `changing`: requests end all the time and others take their place, so most
steps have some prompts. The least of the repeats counts, as the machine may be shared.
"""

import argparse
import gc
import random
import time
from collections import Counter, deque

from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.runner.cuda.step.host import HostPart

BLOCK_SIZE = 16
WARM = 16  # steps before the clock starts
PARTS = ("schedule", "input", "commit")


class World:
    def __init__(self, running: int, steps: int, is_changing: bool, has_prefix_index: bool) -> None:
        num_blocks = running * ((32 + steps + WARM) // BLOCK_SIZE + 3)
        limits = Limits(
            vocab_size=1000, max_model_len=4096, block_size=BLOCK_SIZE, num_blocks=num_blocks, max_running=running,
            max_step_tokens=4 * running,
        )  # fmt: skip
        self._scheduler = Scheduler(limits, Fcfs(), has_prefix_index=has_prefix_index)
        self._host = HostPart(2 * running + 15, 256, BLOCK_SIZE)
        self._crowd = running * (1 + is_changing)
        self._outputs = (32, 96) if is_changing else (steps + WARM + 8,) * 2
        self._rng = random.Random(0)
        self._num_requests = 0
        self._in_flight: deque[StepPlan] = deque()
        self.seconds: Counter[str] = Counter()

    def step(self) -> None:
        while len(self._scheduler.live) < self._crowd:
            self._scheduler.add((self._request(),), 0.0)
        while len(self._in_flight) < 2:
            self._in_flight.append(self._launch())
        plan = self._in_flight.popleft()
        result = StepResult(plan.step, [7] * sum(len(chunk.samples) for chunk in plan.chunks))
        began = time.process_time()
        self._scheduler.commit(plan, result, 0.0)
        self._scheduler.take_events()
        self.seconds["commit"] += time.process_time() - began

    def _launch(self) -> StepPlan:
        began = time.process_time()
        plan = self._scheduler.schedule(0.0)
        planned = time.process_time()
        assert plan is not None
        self._host.input_of(plan)
        self.seconds["schedule"] += planned - began
        self.seconds["input"] += time.process_time() - planned
        return plan

    def _request(self) -> Request:
        self._num_requests += 1
        params = SamplingParams(temperature=0.0, max_tokens=self._rng.randint(*self._outputs))
        prompt = tuple(self._rng.randrange(1000) for _ in range(32))
        return Request(
            id=RequestId(self._num_requests), prompt=prompt, params=params, max_output=params.max_tokens or 1, seed=0
        )


def measure(running: int, steps: int, is_changing: bool, has_prefix_index: bool) -> dict[str, float]:
    """Milliseconds per step, by part."""
    world = World(running, steps, is_changing, has_prefix_index)
    for _ in range(WARM):
        world.step()
    world.seconds.clear()
    gc.collect()
    for _ in range(steps):
        world.step()
    return {part: 1e3 * world.seconds[part] / steps for part in PARTS}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--running", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # as the server does
    print(f"{f'{args.running} running':32} {' '.join(f'{part:>10}' for part in PARTS)}        sum")
    for crowd in ("decoding", "changing"):
        for name, has_index in (("prefix cache", True), ("no prefix cache", False)):
            found = [measure(args.running, args.steps, crowd == "changing", has_index) for _ in range(args.repeats)]
            best = min(found, key=lambda times: sum(times.values()))
            times = " ".join(f"{best[part]:>10.3f}" for part in PARTS)
            print(f"{f'{crowd}, {name}':32} {times} {sum(best.values()):>10.3f}", flush=True)


if __name__ == "__main__":
    main()
