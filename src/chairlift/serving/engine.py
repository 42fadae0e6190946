"""The engine's process."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace

from chairlift.build import ResolvedModel, assemble_served, load
from chairlift.core.ports import DeviceLost
from chairlift.live.processes.child import ReportReady
from chairlift.live.recovery.step_note import StepNote
from chairlift.server.reload import in_force
from chairlift.serving.banner import say, summary
from chairlift.serving.fingerprint import has_known_fingerprint
from chairlift.serving.process_setup import (
    collect_seldom,
    outliving_parent,
    set_log_level,
    set_up_logging,
    unblock_reload_signal,
)
from chairlift.serving.run_folder import RunFolder


def engine_main(report: ReportReady, model: ResolvedModel, folder: RunFolder, start: int) -> None:
    set_up_logging(model.settings)
    signal.signal(signal.SIGHUP, lambda *_: set_log_level(in_force(folder.reloads, model.settings)))
    unblock_reload_signal()
    model = _with_trace(model, start)
    loaded = load(model)
    if loaded.fingerprint is not None and not has_known_fingerprint(folder.fingerprint, loaded.fingerprint):
        os._exit(1)  # another is started
    with outliving_parent(folder), _ending_with_the_device():
        process = assemble_served(model, loaded, folder.address, folder.metrics, StepNote(folder.steps), start)
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
