"""A server of do-nothing processes: `python -m fakes.small_server BEHAVIOUR FILE`; prints what happens, a line each.

Each child prints its name and process id when it starts. BEHAVIOUR says what the engine or the front end does; the file
is there once an engine was. A front end that drains ends when there is a file `has-all` beside it.
"""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from chairlift.core.errors import ChairliftError, InvalidConfig
from chairlift.live.processes import supervisor
from chairlift.live.processes.child import STOP, Child, ReportReady
from chairlift.live.processes.supervisor import Supervisor, Watched
from fakes.patience import HANG_S, wait_until

_LONG_S = 10 * HANG_S


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # in one piece, whoever else is writing


def engine(report: ReportReady, behaviour: str, where: Path) -> None:
    say(f"engine {os.getpid()}")
    if behaviour == "engine refuses":
        raise InvalidConfig("the weights are not there")
    if behaviour == "engine dies at once":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "engine dies when started again" and where.exists():
        os.kill(os.getpid(), signal.SIGKILL)
    summary = "another summary" if behaviour == "engine changes" and where.exists() else "a summary"
    where.touch()
    if behaviour == "engine takes long":
        time.sleep(_LONG_S)
    report([summary])
    if behaviour == "engine hangs":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(_LONG_S)


def front_end(report: ReportReady, behaviour: str, where: Path) -> None:
    say(f"front-end {os.getpid()}")
    if behaviour == "front end drains":
        signal.signal(STOP, lambda *_: _finish(where.with_name("has-all")))
    if behaviour == "front end never drains":
        signal.signal(STOP, lambda *_: say("told"))
    report(None)
    if behaviour.startswith("front end hangs"):
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(_LONG_S)


def _finish(has_all: Path) -> None:
    wait_until(has_all.exists)
    say("drained")
    sys.exit(0)


def main(behaviour: str, where: Path) -> int:
    if behaviour == "front end ends in no hurry":
        supervisor._PATIENCE_S = HANG_S
    made = itertools.count()
    beats = itertools.count()

    def kept(name: str, main: Callable[..., None], hangs: bool) -> Watched:
        beat = (lambda: 7) if hangs else partial(next, beats)
        return Watched(lambda: Child(name, main, behaviour, where), beat, timeout_s=0.3)

    engines = kept("engine", engine, hangs=behaviour == "engine hangs")
    server = Supervisor(
        [engines, kept("front end 0", front_end, hangs=behaviour.startswith("front end hangs"))],
        progress=lambda engine: next(made) if behaviour == "engine makes progress" else 0,
        clear_up=lambda index: index + 3,
        on_engine_death=lambda engine, was_killed: say(f"told: {'killed' if was_killed else 'crashed'}"),
    )
    try:
        return server.run(say, lambda reports: say(f"ready: {reports[0][0]}"))
    except ChairliftError as error:
        say(f"error: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
