"""The cost of watching the engine: microseconds per step, snapshot and explanation, for many requests at once.

    python benchmarks/watching/watch.py

The engine's runner computes nothing, so that nothing but the scheduler and the observer is timed. A
step of a 7B model with 1,024 requests takes some 20 ms on a large GPU: 200 microseconds are a hundredth of it.
"""

import json
import time
from collections.abc import Callable
from functools import partial

from instant import Instant

from chairlift.core.engine import Engine
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.clock import WallClock
from chairlift.telemetry.stopwatch import Stopwatch
from chairlift.telemetry.watch.view import View

NUM_REQUESTS = 1500


def make(max_running: int) -> Engine:
    limits = Limits(
        vocab_size=32000,
        max_model_len=4096,
        block_size=16,
        num_blocks=60_000,
        max_running=max_running,
        max_step_tokens=8192,
    )
    return Engine(Scheduler(limits, Fcfs()), Instant(depth=2), WallClock())


def fill(engine: Engine) -> None:
    params = SamplingParams(max_tokens=600)
    for number in range(1, NUM_REQUESTS + 1):
        prompt = tuple((number * 31 + i) % 32000 for i in range(100))
        output = 200 + number % 400
        engine.add((Request(id=RequestId(number), prompt=prompt, params=params, max_output=output, seed=0),))


class Timed:
    """An observer with timed calls."""

    def __init__(self, view: View) -> None:
        self.seconds = 0.0
        for name in ("added", "aborted", "planned", "committed", "failed", "rolled_back", "happened"):
            setattr(self, name, self._timed(getattr(view, name)))

    def _timed(self, call: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: object) -> None:
            began = time.perf_counter()
            call(*arguments)
            self.seconds += time.perf_counter() - began

        return run


def step_us(engine: Engine, observer: Timed) -> tuple[float, float]:
    """A step of the full running set without the observer, and the observer's part; the least of many."""
    best = (1.0, 1.0)
    for _ in range(200):
        observer.seconds = 0.0
        began = time.perf_counter()
        engine.step()
        whole = time.perf_counter() - began
        best = min(best, (whole - observer.seconds, observer.seconds))
    return 1e6 * best[0], 1e6 * best[1]


def timed_us(work: Callable[[], object], repeats: int = 20) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return 1e6 * min(times)


def main() -> None:
    print("running   scheduler    observer   whole snapshot   news   explanation   whole, bytes")
    for max_running in (64, 256, 1024):
        engine = make(max_running)
        engine.runner = stopwatch = Stopwatch(engine.runner, engine.clock)
        view = View(engine.scheduler, engine.clock, stopwatch)
        observer = engine.observer = Timed(view)
        fill(engine)
        while len(engine.scheduler.running) < max_running:
            engine.step()
        for _ in range(20):
            engine.step()
        plain, watched = step_us(engine, observer)
        whole, news = timed_us(view.whole), timed_us(partial(view.news, 1))
        shown = [bar[0] for bar in json.loads(view.whole())["bars"]]
        told = timed_us(partial(view.explain, RequestId(shown[0])))
        costs = f"{plain:9.0f} us{watched:9.0f} us{whole:14.0f} us{news:4.0f} us{told:11.0f} us"
        print(f"{max_running:7}{costs}{len(view.whole()):15}")


if __name__ == "__main__":
    main()
