"""The real model: how long its steps take, and what a setting really gives. Each in a process of its own.

Always: nothing of a model stays behind in the calling process, so that settings can take turns on a device that holds
one model at a time. Which model, and how it is loaded, the caller says.
"""

import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from chairlift.config.settings import Settings
from chairlift.core.errors import ChairliftError
from chairlift.runner import hardware
from chairlift.runner.load import Loaded
from chairlift.runner.sizing import limits_without_pool
from chairlift.runner.warm_up import prepare
from chairlift.sim.calibration.calibrate import Calibrator, profile_of
from chairlift.sim.live import run_live
from chairlift.sim.profile import Profile
from chairlift.sim.setup import make_scheduler
from chairlift.telemetry.lines import Rules
from chairlift.telemetry.report import Report
from chairlift.workload.arrivals import Arrivals, parse_arrivals
from chairlift.workload.item import Item

T = TypeVar("T")

_ROUNDS = 5  # of a calibration at most
_MOST_WARM = 32  # requests that go before those that count


@dataclass(frozen=True, slots=True)
class Model:
    """How a model is found, loaded and scheduled; all three can be found by their names in another process."""

    find: Callable[[Settings], Any]
    load: Callable[[Any], Loaded]
    rules: Callable[[Settings, Loaded], Rules]


def in_own_process(task: Callable[..., T], *arguments: object) -> T:
    """Its result, or the mistake of the user that it raised. Interrupted, it ends the process."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to deal with
    try:
        answer = (task(*arguments), "")
    except ChairliftError as error:
        answer = (None, str(error))
    pipe.send(answer)


def calibrated(model: Model, settings: Settings, reach: int, seconds: float) -> Profile:
    """A quick calibration, over `reach` times as many requests and tokens a step as there are by default; as many
    rounds as fit into the seconds, but one at least."""
    found = model.find(replace(settings, preemption="swap"))  # so that moving blocks is timed too
    usual = limits_without_pool(settings, found.config, hardware.pick_device(settings.device))
    wide = replace(
        settings,
        preemption="swap",
        max_running=reach * usual.max_running,
        max_step_tokens=reach * usual.max_step_tokens,
    )
    loaded = model.load(model.find(wide))
    calibrator = Calibrator(loaded.runner, loaded.limits, loaded.num_host_blocks, is_quick=True)
    started = time.monotonic()
    calibrator.time(1)
    round_s = (time.monotonic() - started) / 2  # another one went before it
    more = min(_ROUNDS - 1, int(seconds / round_s) - 2)
    if more > 0:
        calibrator.time(more)
    profile = profile_of("calibrated", found.name, found.config, loaded, calibrator.result())
    return replace(profile, max_running=usual.max_running, max_step_tokens=usual.max_step_tokens)


def measured(
    model: Model, settings: Settings, items: Sequence[Item], num_warm: int, arrivals: str, seed: int
) -> Report:
    """One run of the workload, after the first of its requests have warmed everything up."""
    loaded = model.load(model.find(settings))
    while prepare(loaded.runner):
        pass
    _run(model, loaded, settings, items[: min(num_warm, _MOST_WARM)], parse_arrivals("none"), seed)
    return _run(model, loaded, settings, items, parse_arrivals(arrivals), seed)


def _run(
    model: Model, loaded: Loaded, settings: Settings, items: Sequence[Item], arrivals: Arrivals, seed: int
) -> Report:
    scheduler = make_scheduler(loaded.limits, model.rules(settings, loaded))
    return run_live(loaded.runner, scheduler, items, arrivals, seed)


def device_here() -> str:
    """As profiles name it."""
    facts = hardware.describe()
    return facts.get("gpu 0", facts["cpu"])


def is_same_device(one: str, other: str) -> bool:
    """By name: what follows it is memory or threads."""
    return one.split(",")[0] == other.split(",")[0]
