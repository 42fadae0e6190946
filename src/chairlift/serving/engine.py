"""The engine's process."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace

from chairlift.build import ResolvedModel, assemble_served, load
from chairlift.core.ports import DeviceLost
from chairlift.live.processes.child import Report
from chairlift.live.recovery.step_note import StepNote
from chairlift.server.reload import in_force
from chairlift.serving.banner import say, summary
from chairlift.serving.common import collect_seldom, hear_of_settings, outliving_parent, set_log_level, set_up_logging
from chairlift.serving.fingerprint import has_right_bits
from chairlift.serving.run_folder import Place


def engine_main(report: Report, model: ResolvedModel, place: Place, start: int) -> None:
    set_up_logging(model.settings)
    signal.signal(signal.SIGHUP, lambda *_: set_log_level(in_force(place.reloads, model.settings)))
    hear_of_settings()
    model = _with_trace(model, start)
    loaded = load(model)
    if loaded.fingerprint is not None and not has_right_bits(place.bits, loaded.fingerprint):
        os._exit(1)  # another is started
    with outliving_parent(place), _ending_with_the_device():
        process = assemble_served(model, loaded, place.address, place.metrics, StepNote(place.steps), start)
        collect_seldom()
        report(summary(loaded))
        process.run()


def _with_trace(model: ResolvedModel, start: int) -> ResolvedModel:
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
