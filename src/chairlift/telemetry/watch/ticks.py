"""Ticks: what the engine did in about a second, as one row of numbers."""

from operator import add
from typing import Any

import msgspec

from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.telemetry.device import DeviceUse

PERIOD_S = 1.0
KEEP_S = 300.0  # how long ticks are kept
WINDOW_S = 30  # of latencies
Percentiles = tuple[float, ...] | None  # p50, p90, p99


class TickSums(msgspec.Struct):
    """Added up since the last tick."""

    prompt_tokens: int = 0  # computed
    output_tokens: int = 0
    cached_tokens: int = 0  # of prompts, found in the prefix index
    missed_tokens: int = 0  # of prompts, whose blocks were found there, and not the state or windows after them
    finished: int = 0
    failed: int = 0
    aborted: int = 0
    preemptions: int = 0
    steps: int = 0
    busy_s: float = 0.0  # with a step in flight
    # The time of the engine's thread; together, all of it while there was work.
    schedule_s: float = 0.0
    prepare_s: float = 0.0  # until the device had the step
    compute_s: float = 0.0  # waiting for the device, or computing
    commit_s: float = 0.0
    other_s: float = 0.0  # reading from front ends and sending to them


class TickLevels(msgspec.Struct):
    """As they are at the end of the tick."""

    at: float
    seconds: float
    running: int
    waiting: int
    preempted: int
    longest_wait_s: float  # of a request that was never admitted; 0: none waits
    blank: int  # blocks that hold nothing
    cached: int  # free blocks that still hold a prefix
    held: int
    swapped: int  # blocks in host memory
    ttft_s: Percentiles
    tpot_s: Percentiles
    itl_s: Percentiles
    device: DeviceUse | None  # of a GPU


Tick = tuple[Any, ...]  # the levels, then the sums
COLUMNS = (*TickLevels.__struct_fields__, *TickSums.__struct_fields__)


def make_tick(
    at: float,
    seconds: float,
    scheduler: Scheduler,
    num_waiting: int,
    longest_wait_s: float,
    latencies: tuple[Percentiles, Percentiles, Percentiles],
    device: DeviceUse | None,
    sums: TickSums,
) -> Tick:
    pool, host = scheduler.pool, scheduler.tables.host
    levels = TickLevels(
        round(at, 3),
        round(seconds, 3),
        len(scheduler.running),
        num_waiting,
        len(scheduler.preempted),
        round(longest_wait_s, 3),
        pool.num_free - pool.num_cached,
        pool.num_cached,
        pool.num_held,
        host.num_held,
        *latencies,
        device,
    )
    return *msgspec.structs.astuple(levels), *(round(value, 6) for value in msgspec.structs.astuple(sums))


def added_up(total: TickSums, more: TickSums) -> TickSums:
    return TickSums(*map(add, msgspec.structs.astuple(total), msgspec.structs.astuple(more)))
