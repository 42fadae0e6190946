"""What every process of a server does at its start: logging, being told of new settings, looking for cycles seldom."""

import contextlib
import gc
import logging
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator

from chairlift.config.settings import Settings
from chairlift.serving.place import Place
from chairlift.telemetry import log_lines


def set_up_logging(settings: Settings) -> None:
    log_lines.set_up_logging(settings.log_level, settings.log_format)


def set_log_level(settings: Settings) -> None:
    logging.getLogger().setLevel(settings.log_level.upper())


def hear_of_settings() -> None:
    """Once somebody listens."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def collect_seldom() -> None:
    """What is loaded stays for good, and what requests leave behind is mostly freed when they end: looking for cycles
    as often as usual would take a third of the time that requests do, and stop every stream meanwhile."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@contextlib.contextmanager
def sweeping(place: Place) -> Iterator[None]:
    """At the end removes the folder if the parent is gone, which would have done so. Everybody does, so that whoever is
    last has nobody behind that still writes there."""
    try:
        yield
    finally:
        parent = multiprocessing.parent_process()
        if parent is not None and os.getppid() != parent.pid:
            shutil.rmtree(place.folder, ignore_errors=True)
