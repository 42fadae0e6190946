"""Set-up of a server's processes: log level, garbage collection, the end of the parent."""

import contextlib
import gc
import logging
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from chairlift.config.settings import Settings
from chairlift.live.processes.child import on_parents_end


class RunFolder:
    """The run folder: where the processes of a server meet, made by the parent for its own user alone."""

    def __init__(self, path: Path, pieces: Path | None = None) -> None:
        """`pieces`: a folder in shared memory, for keys and values that move between engines."""
        self.path = path
        self.pieces = pieces or path / "pieces"
        self.adapters = path / "adapters.json"  # that requests may name
        self.fingerprint = path / "fingerprint"  # of an exact engine, for the next to compare with
        self.counts = path / "counts"
        self.members = f"ipc://{path}/members"  # where the members' list publishes
        self.terms = path / "terms"  # what the fleet's first engine is like, for the next members' list
        self.metrics = path / "metrics"  # a folder
        self.numbers = path / "numbers"  # of engines on other machines, likewise
        self.rates = path / "rates"
        self.reloads = path / "settings.json"  # the outcome of the last reload

    def address(self, replica: int) -> str:
        """Of an engine's socket."""
        return f"ipc://{self.path}/engine-{replica}"

    def steps(self, replica: int) -> Path:
        """The note of an engine's steps in flight."""
        return self.path / f"steps-{replica}"


def set_log_level(settings: Settings) -> None:
    logging.getLogger().setLevel(settings.log_level.upper())


def collect_seldom() -> None:
    """What is loaded stays, and requests leave few cycles: collecting as often as usual would take a third of the time
    that requests do, and stall every stream meanwhile."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@contextlib.contextmanager
def outliving_parent(folder: RunFolder, say_goodbye: Callable[[], None] = lambda: None) -> Iterator[None]:
    """When the parent is gone, calls `say_goodbye` in a thread and ends this process. Then removes the folder, as the
    parent would have; every process does, as the others may still write there."""

    def remove() -> None:
        for path in (folder.path, folder.pieces):
            shutil.rmtree(path, ignore_errors=True)

    def end() -> None:
        say_goodbye()
        remove()

    on_parents_end(end)
    try:
        yield
    finally:
        parent = multiprocessing.parent_process()
        if parent is not None and os.getppid() != parent.pid:
            remove()
