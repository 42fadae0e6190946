"""Measures the cost of metrics: the same steps with and without them, in turns, and the cost of a request.

    python benchmarks/watching/metrics.py [host] [request] [model] [--rows 256] [--turns 5]

host     an engine on a runner that computes nothing: microseconds of a step of `--rows` decodes, and what metrics add
request  the front end's cost of a request: its record, counts, a log line, spans; the least of many tries
model    the embedded model with 32 requests at once: time with metrics over time without
"""

import argparse
import asyncio
import logging
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from instant import Instant

from chairlift.build import assemble_watched, find_model, load
from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.clock import WallClock
from chairlift.live.recovery.step_note import StepNote
from chairlift.live.wire.messages import Submit
from chairlift.live.wire.switchboard import Switchboard
from chairlift.server.request_log.log import RequestLog
from chairlift.telemetry.log_lines import JsonLines
from chairlift.telemetry.metrics.engine import EngineMetrics
from chairlift.telemetry.metrics.front_end import FrontEndMetrics
from chairlift.telemetry.metrics.store import Store
from chairlift.telemetry.phases import Mark
from chairlift.telemetry.spans import Spans
from chairlift.telemetry.stopwatch import Stopwatch


def step_us(rows: int, num_steps: int, folder: Path | None) -> float:
    limits = Limits(
        vocab_size=100, max_model_len=4096, block_size=16, num_blocks=rows * 64, max_running=rows, max_step_tokens=8192
    )
    scheduler = Scheduler(limits, Fcfs())
    stopwatch = Stopwatch(Instant(), WallClock())
    observer = EngineMetrics(Store(folder, "engine"), scheduler, stopwatch) if folder else None
    engine = Engine(scheduler, stopwatch if folder else Instant(), WallClock(), observer)
    params = SamplingParams(max_tokens=900)
    for i in range(rows):
        engine.add((Request(id=RequestId(i + 1), prompt=(1, 2, i), params=params, max_output=900, seed=0),))
    for _ in range(20):
        engine.step()
    taken = []
    for _ in range(num_steps):
        began = time.perf_counter()
        engine.step()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[num_steps // 20] * 1e6  # in the rest other programs had the core


def compare_host(rows: int, turns: int, folder: Path) -> None:
    step_us(rows, 200, folder)
    pairs = [(step_us(rows, 400, None), step_us(rows, 400, folder)) for _ in range(turns)]
    without, added = min(a for a, _ in pairs), min(b for _, b in pairs) - min(a for a, _ in pairs)
    print(f"{rows} decodes: {without:.0f} us of host time a step without, {added:.1f} us added by counting")


class Answered:
    """Replaces a finished answer of 64 tokens."""

    prompt, num_cached, num_output, finish, error, kept = [1] * 32, 16, 64, "stop", None, None
    params = SamplingParams(max_tokens=64)

    def __init__(self, now: float) -> None:
        self.first, self.last, self.name = now + 0.1, now + 0.9, ""
        self.marks: list[Mark] | None = [("queued", now), ("prompt", now + 0.01)]


def request_us(request_log: RequestLog) -> float:
    """The least of many: the others include other programs' time."""
    least = float("inf")
    for _ in range(3000):
        scope: dict[str, Any] = {"method": "POST", "headers": [(b"host", b"x"), (b"content-type", b"application/json")]}
        answer = Answered(time.monotonic())
        began = time.perf_counter()
        record = request_log.open(scope)
        record.status, record.answers = 200, [answer]
        request_log.close(scope, record, "/v1/completions", True)
        least = min(least, time.perf_counter() - began)
    return least * 1e6


async def compare_request(folder: Path) -> None:
    logger = logging.getLogger("chairlift.requests")
    handler = logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    logger.setLevel("INFO")
    metrics = FrontEndMetrics(folder, 0)
    spans = Spans("http://127.0.0.1:9", {"service.name": "chairlift"}, lambda outcome, count: None, 10**6)
    for name, request_log in (
        ("nothing but its id", RequestLog()),
        ("metrics", RequestLog(model="small", metrics=metrics)),
        ("metrics and a log line", RequestLog(model="small", metrics=metrics, logs=True)),
        ("metrics and spans", RequestLog(model="small", metrics=metrics, spans=spans)),
    ):
        print(f"a request, {name}: {request_us(request_log):.1f} us", flush=True)


def compare_model(turns: int, folder: Path) -> None:
    model = find_model(Settings())
    loaded = load(model)
    switchboard, *_ = assemble_watched(model, loaded, folder, StepNote(folder / "steps"), 1)
    engine = switchboard.engine
    runner, observer = engine.runner, engine.observer
    ratios: list[tuple[float, float]] = []
    run(switchboard)
    for turn in range(turns):
        seconds = {}
        for is_on in (True, False) if turn % 2 else (False, True):
            engine.runner, engine.observer = (runner, observer) if is_on else (loaded.runner, None)
            seconds[is_on] = run(switchboard)
        (wall_on, cpu_on), (wall_off, cpu_off) = seconds[True], seconds[False]
        ratios.append((wall_on / wall_off, cpu_on / cpu_off))
        print(f"on {wall_on:.2f} s, off {wall_off:.2f} s; processor time {cpu_on:.2f}, {cpu_off:.2f} s", flush=True)
    wall, cpu = (statistics.median(each) for each in zip(*ratios, strict=True))
    print(f"median of on over off: {wall:.4f} by the clock, {cpu:.4f} in processor time")


def run(switchboard: Switchboard) -> tuple[float, float]:
    """Seconds of wall-clock and of processor time."""
    params = SamplingParams(max_tokens=48, ignore_eos=True, temperature=0.0)
    began = time.perf_counter(), time.process_time()
    for key in range(32):
        switchboard.submit(b"me", Submit(key, [1, 2, 3, 4 + key], params, params.max_tokens or 1))
    while switchboard.has_work:
        switchboard.step()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", choices=("host", "request", "model", []))
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.what or "host" in arguments.what:
            for rows in (1, arguments.rows):
                compare_host(rows, arguments.turns, Path(folder))
        if not arguments.what or "request" in arguments.what:
            asyncio.run(compare_request(Path(folder)))
        if not arguments.what or "model" in arguments.what:
            compare_model(arguments.turns, Path(folder))


if __name__ == "__main__":
    main()
