"""What every process of a server does at its start: logging, being told of new settings, looking for cycles seldom."""

import contextlib
import gc
import logging
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator

from chairlift.config.settings import Settings
from chairlift.live.processes.child import on_parents_end
from chairlift.serving.run_folder import RunFolder
from chairlift.telemetry import log_lines


def set_up_logging(settings: Settings) -> None:
    log_lines.set_up_logging(settings.log_level, settings.log_format)


def set_log_level(settings: Settings) -> None:
    logging.getLogger().setLevel(settings.log_level.upper())


def unblock_reload_signal() -> None:
    """Once somebody listens."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def collect_seldom() -> None:
    """What is loaded stays for good, and what requests leave behind is mostly freed when they end: looking for cycles
    as often as usual would take a third of the time that requests do, and stop every stream meanwhile."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@contextlib.contextmanager
def outliving_parent(folder: RunFolder, say_goodbye: Callable[[], None] = lambda: None) -> Iterator[None]:
    """If the parent is gone, `say_goodbye` is called, in a thread; then this process ends, if it has not by itself. At
    the end it removes the folder, as the parent would have. Everybody does, so that whoever is last has nobody behind
    that still writes there."""

    def end() -> None:
        say_goodbye()
        _sweep(folder)

    on_parents_end(end)
    try:
        yield
    finally:
        parent = multiprocessing.parent_process()
        if parent is not None and os.getppid() != parent.pid:
            _sweep(folder)


def _sweep(folder: RunFolder) -> None:
    shutil.rmtree(folder.path, ignore_errors=True)
