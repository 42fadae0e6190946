"""Set-up of a server's processes: log level, garbage collection, the end of the parent."""

import contextlib
import gc
import logging
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator

from chairlift.config.settings import Settings
from chairlift.live.processes.child import on_parents_end
from chairlift.serving.run_folder import RunFolder


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
