"""What watching the engine costs: microseconds a step, a snapshot and an explanation, for many requests at once.

    python benchmarks/watch.py

The engine runs on a runner that makes up tokens at once, so that nothing but the scheduler and the observer is timed. A
step of a 7B model with 1,024 requests takes some 20 ms on a large GPU: 200 microseconds are a hundredth of it.
"""

import json
import statistics
import time
from collections import deque

from chairlift.core.engine import Engine
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policies.fcfs import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduler import Scheduler
from chairlift.live.clock import WallClock
from chairlift.telemetry.watch.view import View

NUM_REQUESTS = 1500


class Instant:
    depth = 2

    def __init__(self) -> None:
        self._plans: deque[StepPlan] = deque()

    def submit(self, plan: StepPlan) -> None:
        self._plans.append(plan)

    def collect(self) -> StepResult:
        plan = self._plans.popleft()
        return StepResult(plan.step, [7] * sum(len(chunk.samples) for chunk in plan.chunks))


def make(max_running: int) -> Engine:
    limits = Limits(
        vocab_size=32000,
        max_model_len=4096,
        block_size=16,
        num_blocks=60_000,
        max_running=max_running,
        max_step_tokens=8192,
    )
    return Engine(Scheduler(limits, Fcfs()), Instant(), WallClock())


def fill(engine: Engine) -> None:
    params = SamplingParams(max_tokens=600)
    for number in range(1, NUM_REQUESTS + 1):
        prompt = tuple((number * 31 + i) % 32000 for i in range(100))
        output = 200 + number % 400
        engine.add((Request(id=RequestId(number), prompt=prompt, params=params, max_output=output, seed=0),))


def step_us(engine: Engine, count: int) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


def timed_us(work: object, repeats: int = 20) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()  # type: ignore[operator]
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


def main() -> None:
    print("running  step without  step watched  observer  whole snapshot  news  explanation  whole, bytes")
    for max_running in (64, 256, 1024):
        bare, watched = make(max_running), make(max_running)
        view = View(watched)
        fill(bare)
        fill(watched)
        pairs = []
        for _ in range(10):
            pairs.append((step_us(bare, 15), step_us(watched, 15)))
        without, with_it = (statistics.median(each) for each in zip(*pairs, strict=True))
        whole, news = timed_us(view.whole), timed_us(lambda view=view: view.news(1))
        shown = [bar[0] for bar in json.loads(view.whole())["bars"]]
        told = timed_us(lambda view=view, shown=shown: view.explain(RequestId(shown[0])))
        costs = f"{without:10.0f} us{with_it:11.0f} us{with_it - without:7.0f} us{whole:13.0f} us{news:6.0f} us"
        print(f"{max_running:7}{costs}{told:10.0f} us{len(view.whole()):14}")


if __name__ == "__main__":
    main()
