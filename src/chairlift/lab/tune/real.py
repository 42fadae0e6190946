"""Calibrates and measures the real model, each in a process of its own.

Always: nothing of a model stays in the calling process, so that settings can take turns on a device that holds one.
"""

import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TypeVar

from chairlift.build import ResolvedModel, load, rules_of
from chairlift.config.scheduler import make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.errors import ChairliftError
from chairlift.lab.sim.calibration.calibrate import Calibrator, profile_of
from chairlift.lab.sim.profile import Profile
from chairlift.lab.sim.run import run_live
from chairlift.lab.workload.arrivals import Arrivals, parse_arrivals
from chairlift.lab.workload.item import Item
from chairlift.runner.machine import hardware
from chairlift.runner.memory.sizing import limits_without_pool
from chairlift.runner.start.load import Loaded
from chairlift.runner.start.warm_up import prepare
from chairlift.telemetry.report import Report

T = TypeVar("T")

_ROUNDS = 5  # of a calibration at most
_MOST_WARM = 32  # requests of the warm-up


def in_own_process(task: Callable[..., T], *arguments: object) -> T:
    """Returns the task's result or raises its error. Interrupted, it ends the process."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, task, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        result, error = mine.recv()
    except EOFError:
        process.join()
        raise ChairliftError(f"the process that ran the model died (exit code {process.exitcode})") from None
    finally:
        process.terminate()
        process.join()
    if error:
        raise ChairliftError(error)
    done: T = result
    return done


def _answer(pipe: Connection, task: Callable[..., object], arguments: tuple[object, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    try:
        answer = (task(*arguments), "")
    except ChairliftError as error:
        answer = (None, str(error))
    pipe.send(answer)


def calibrated(model: ResolvedModel, reach: int, seconds: float) -> Profile:
    """A quick calibration over `reach` times the default requests and tokens a step; as many rounds as fit into the
    seconds, but one at least."""
    settings = model.settings
    usual = limits_without_pool(settings, model.config, hardware.pick_device(settings.device))
    wide = replace(
        settings,
        preemption="swap",  # so that moving blocks is timed too
        max_running=reach * usual.max_running,
        max_step_tokens=reach * usual.max_step_tokens,
    )
    loaded = load(model.under(wide))
    calibrator = Calibrator(loaded.runner, loaded.limits, loaded.num_host_blocks, is_quick=True)
    started = time.monotonic()
    calibrator.time(1)
    round_s = (time.monotonic() - started) / 2  # with the warm-up
    more = min(_ROUNDS - 1, int(seconds / round_s) - 2)
    if more > 0:
        calibrator.time(more)
    profile = profile_of("calibrated", model.name, model.config, loaded, calibrator.result())
    return replace(profile, max_running=usual.max_running, max_step_tokens=usual.max_step_tokens)


def measured(model: ResolvedModel, items: Sequence[Item], num_warm: int, arrivals: str, seed: int) -> Report:
    """One run of the workload, after some of its requests as warm-up."""
    loaded, settings = load(model), model.settings
    while prepare(loaded.runner):
        pass
    _run(loaded, settings, items[: min(num_warm, _MOST_WARM)], parse_arrivals("none"), seed)
    return _run(loaded, settings, items, parse_arrivals(arrivals), seed)


def _run(loaded: Loaded, settings: Settings, items: Sequence[Item], arrivals: Arrivals, seed: int) -> Report:
    scheduler = make_scheduler(loaded.limits, rules_of(settings, loaded))
    return run_live(loaded.runner, scheduler, items, arrivals, seed)


def device_here() -> str:
    """As profiles name it."""
    facts = hardware.describe()
    return facts.get("gpu 0", facts["cpu"])


def is_same_device(one: str, other: str) -> bool:
    """By name: what follows it is memory or threads."""
    return one.split(",")[0] == other.split(",")[0]
