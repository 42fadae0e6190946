"""What rank processes run in tests of how they are started and watched."""

import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from chairlift.core.errors import InvalidConfig
from chairlift.live.processes.child import ReportReady


def echo(report: ReportReady, index: int, pipe: Connection, store: Path, folder: Path) -> None:
    """Writes down what it is sent, until its pipe is closed."""
    with (folder / f"rank-{index}").open("ab", buffering=0) as file:
        file.write(b"%d," % os.getpid())
        report(index)
        while True:
            try:
                file.write(pipe.recv_bytes())
            except EOFError:
                return


def refuse(report: ReportReady, index: int, *_: Any) -> None:
    raise InvalidConfig(f"rank {index} has no memory left")


def die(report: ReportReady, index: int, *_: Any) -> None:
    os._exit(3)
