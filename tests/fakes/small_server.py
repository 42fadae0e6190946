"""A server of do-nothing processes: `python -m fakes.small_server BEHAVIOUR`; prints what happens, a line each.

Each child prints its name and process id when it starts. BEHAVIOUR says what the engine or the front end does.
"""

import os
import signal
import sys
import time

from chairlift.core.errors import ChairliftError, InvalidConfig
from chairlift.live.processes import Child, Report, Server


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # in one piece, whoever else is writing


def engine(report: Report, behaviour: str) -> None:
    say(f"engine {os.getpid()}")
    if behaviour == "engine refuses":
        raise InvalidConfig("the weights are not there")
    if behaviour == "engine dies at once":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "engine takes long":
        time.sleep(60)
    report("a summary")
    time.sleep(60)


def front_end(report: Report, behaviour: str) -> None:
    say(f"front-end {os.getpid()}")
    if behaviour == "front end drains":
        signal.signal(signal.SIGTERM, _finish)
    if behaviour == "front end never drains":
        signal.signal(signal.SIGTERM, lambda *_: say("told"))
    report(None)
    time.sleep(60)


def _finish(*_: object) -> None:
    time.sleep(1.0)  # what it still has to do
    say("drained")
    sys.exit(0)


def main(behaviour: str) -> int:
    server = Server(lambda: Child("engine", engine, behaviour), [lambda: Child("front end 0", front_end, behaviour)])
    try:
        return server.run(say, lambda report: say(f"ready: {report}"))
    except ChairliftError as error:
        say(f"error: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
