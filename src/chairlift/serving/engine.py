"""The engine's process."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

from chairlift.build import ResolvedModel, assemble_served, load
from chairlift.core.ports import DeviceLost
from chairlift.live.processes.child import Child, ReportReady
from chairlift.live.recovery.step_note import StepNote
from chairlift.server.reload import in_force
from chairlift.serving import process_setup
from chairlift.serving.banner import summary
from chairlift.serving.fingerprint import has_known_fingerprint
from chairlift.serving.process_setup import RunFolder
from chairlift.serving.share import share_of
from chairlift.telemetry.log_lines import flush_log, say, set_up_logging

_MOMENT_S = 0.5  # until a rank's death is known for what it is


def engine_main(
    report: ReportReady,
    model: ResolvedModel,
    folder: RunFolder,
    replica: int,
    start: int,
    public: str | None,
    pieces_at: str | None,
) -> None:
    """`start` counts the engines of this replica, from 1. `public`: an address for front ends on other machines,
    `pieces_at`: one for engines there."""
    set_up_logging(model.settings.log_level, model.settings.log_format)
    signal.signal(signal.SIGHUP, lambda *_: process_setup.set_log_level(in_force(folder.reloads, model.settings)))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    model = _with_trace(model, replica, start)
    with share_of(model, folder, replica) as shared:
        loaded = load(shared, _end_as)
    if loaded.fingerprint is not None and not has_known_fingerprint(folder.fingerprint, loaded.fingerprint):
        flush_log()
        os._exit(1)  # another is started
    with process_setup.outliving_parent(folder), _ending_with_the_device(loaded.num_ranks):
        note = StepNote(folder.steps(replica))
        process = assemble_served(
            model,
            loaded,
            folder.address(replica),
            folder.metrics,
            note,
            start,
            replica,
            public,
            folder.pieces,
            pieces_at,
        )
        process_setup.collect_seldom()
        report(summary(loaded))
        process.run()


def _with_trace(model: ResolvedModel, replica: int, start: int) -> ResolvedModel:
    """Each replica writes its own file, and a restarted engine another one, to keep the last steps of the dead one."""
    trace = model.settings.trace
    if trace is None or (replica == 0 and start == 1):
        return model
    name = trace.name + (f".replica-{replica}" if replica else "") + (f".{start}" if start > 1 else "")
    return replace(model, settings=replace(model.settings, trace=trace.with_name(name)))


def _end_as(rank: Child) -> None:
    """Ends the engine as a rank has ended, so that the parent can tell a kill from a crash."""
    say(f"the engine ends, because its {rank.name} died ({rank.describe_end()})")
    flush_log()
    code = rank.process.exitcode or 1
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(1)


@contextlib.contextmanager
def _ending_with_the_device(num_ranks: int) -> Iterator[None]:
    """Exits without cleaning up, which may wait for the device for ever. If it was a rank's death, `_end_as` comes
    first."""
    try:
        yield
    except DeviceLost as error:
        if num_ranks > 1:
            time.sleep(_MOMENT_S)
        say(f"the engine ends, because nothing can be computed any more: {error}")
        flush_log()
        os._exit(1)
