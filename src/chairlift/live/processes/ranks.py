"""The rank processes beside an engine's: each computes a part of the model for the process that started them.

Always: they end when that process does, or when it closes their pipes. The death of one is told once. Knows nothing of
what they compute.
"""

import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.util import Finalize
from pathlib import Path
from types import ModuleType
from typing import Any

from chairlift.live.processes.child import Child, Main, ReportReady, as_ready, on_parents_end

OnDeath = Callable[[Child], None]


class RankProcesses:
    def __init__(self, count: int, main: Main, *args: Any) -> None:
        """Starts ranks 1 to count - 1 with main(report, index, pipe, store, *args). `store`: a path of a file for them
        to meet in."""
        self._folder = tempfile.mkdtemp(prefix="chairlift-ranks-")  # readable by this user alone
        self.store = Path(self._folder, "store")
        self._children: list[Child] = []
        self._is_ending = False
        self._pipes: list[Connection] = []
        Finalize(None, self.end, exitpriority=0)  # else this process would wait for them at its exit
        for index in range(1, count):
            theirs, ours = Pipe(duplex=False)
            with _without_main():
                child = Child(f"rank {index}", _main, self._folder, main, index, theirs, self.store, *args)
            theirs.close()
            self._children.append(child)
            self._pipes.append(ours)

    def ready(self, on_death: OnDeath) -> list[Connection]:
        """Waits until all are ready and hands over the pipes to them; raises `InvalidConfig` or `Died` with the line of
        the first that cannot start. From then on `on_death` is called, in a thread, when one dies."""
        for _ in as_ready(self._children):
            pass
        pipes, self._pipes = self._pipes, []  # closed when whoever has them is gone
        threading.Thread(target=self._watch, args=(on_death,), name="ranks", daemon=True).start()
        return pipes

    def end(self) -> None:
        self._is_ending = True
        for child in self._children:
            child.kill()
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _watch(self, on_death: OnDeath) -> None:
        running = {child.process.sentinel: child for child in self._children}
        while running:
            for sentinel in wait(list(running)):
                child = running.pop(sentinel)  # type: ignore[arg-type]
                child.process.join()
                if child.process.exitcode and not self._is_ending:  # 0: its pipe was closed
                    self._remove()  # perhaps nothing else will
                    on_death(child)
                    return


def _main(report: ReportReady, folder: str, main: Main, *args: Any) -> None:
    remove = partial(shutil.rmtree, folder, ignore_errors=True)
    on_parents_end(remove)
    try:
        main(report, *args)
    finally:
        remove()


@contextmanager
def _without_main() -> Iterator[None]:
    """A process started inside does not run the user's script, whose names it does not need, a second time."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
