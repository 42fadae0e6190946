"""The engine's process."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from chairlift.build import Model, assemble_served, load
from chairlift.core.ports import DeviceLost
from chairlift.live.child import Report
from chairlift.live.messages import EngineInfo
from chairlift.live.step_note import StepNote
from chairlift.server.reload import in_force
from chairlift.serving.bits import has_right_bits
from chairlift.serving.common import collect_seldom, hear_of_settings, outliving_parent, set_log_level, set_up_logging
from chairlift.serving.place import Place
from chairlift.serving.words import say, summary


def engine_main(report: Report, model: Model, place: Place, start: int) -> None:
    set_up_logging(model.settings)
    signal.signal(signal.SIGHUP, lambda *_: set_log_level(in_force(place.reloads, model.settings)))
    hear_of_settings()
    model = _with_trace(model, start)
    loaded = load(model)
    from chairlift.live.engine_process import EngineProcess
    from chairlift.runner.freed_memory import return_freed_memory
    from chairlift.runner.warm_up import prepare
    from chairlift.runner.watch import Layered

    if loaded.fingerprint is not None and not has_right_bits(place.bits, loaded.fingerprint):
        os._exit(1)  # another is started
    note = StepNote(place.steps)
    switchboard, view = assemble_served(model, loaded, place.metrics, note, start)
    if isinstance(loaded.runner, Layered):
        loaded.runner.on_layer = note.beat
    max_sleep_s = model.settings.engine_timeout / 4 or None
    with outliving_parent(place), _ending_with_the_device():
        info = EngineInfo(loaded.limits, loaded.dtype, loaded.device, loaded.fingerprint)
        process = EngineProcess(
            place.address,
            switchboard,
            view,
            info,
            partial(prepare, loaded.runner),
            note,
            return_freed_memory,
            max_sleep_s,
        )
        collect_seldom()
        report(summary(loaded))
        process.run()


def _with_trace(model: Model, start: int) -> Model:
    """An engine that is started again writes another file: the last steps of the one that died are worth keeping."""
    trace = model.settings.trace
    if trace is None or start == 1:
        return model
    return replace(model, settings=replace(model.settings, trace=trace.with_name(f"{trace.name}.{start}")))


@contextlib.contextmanager
def _ending_with_the_device() -> Iterator[None]:
    """At once: what is left to tidy up may need the device, and wait for it for ever."""
    try:
        yield
    except DeviceLost as error:
        say(f"the engine ends, because nothing can be computed any more: {error}")
        os._exit(1)
