"""An engine process on the ledger runner, for tests that need one to kill or to measure.

Whatever request has `POISON` in its prompt ends the process, in the step that computes it, and one with `BAD_AT_DOOR`
when it is taken in; one that begins with `STUCK` holds its step up until the process is sent SIGUSR1, and makes the
file `stuck_at` before.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from chairlift.core.engine import Engine
from chairlift.core.plan import StepPlan
from chairlift.core.ports import HostMemory
from chairlift.core.request import Request
from chairlift.core.routing.queued import QueuedWork
from chairlift.live.moving.fetch import Fetcher
from chairlift.live.moving.moves import Moves
from chairlift.live.moving.shelf import Shelf
from chairlift.live.moving.sockets import PieceClient, PieceServer
from chairlift.live.processes.child import was_killed
from chairlift.live.recovery.step_note import NotedRunner, StepNote
from chairlift.live.wire.curve import Curve
from chairlift.live.wire.engine_process import EngineProcess
from fakes.ledger import LedgerRunner
from fakes.switchboards import info_of, ledger_switchboard
from fakes.viewed import viewed

POISON = 666
BAD_AT_DOOR = 667
STUCK = 777
_FOLDERS = Path(__file__).parents[1], Path(__file__).parents[2] / "src"


def start(address: str, *public: str) -> subprocess.Popen[bytes]:
    """`public`: an address for other machines and the cluster key, if any; then where keys and values are sent from,
    and where others are told that they are."""
    path = ":".join(map(str, _FOLDERS))
    command = [sys.executable, "-m", "fakes.ledger_process", address, *public]
    return subprocess.Popen(command, env={"PYTHONPATH": path})


def note_at(address: str) -> StepNote:
    return StepNote(Path(address.removeprefix("ipc://") + ".steps"))


class Restarted:
    """One engine after another: whenever one dies, the next is started."""

    def __init__(self, address: str, *public: str) -> None:
        self.num_deaths = 0
        self._address, self._public = address, public

    async def __aenter__(self) -> "Restarted":
        self._process = start(self._address, *self._public)
        self._watch = asyncio.ensure_future(self._restart())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watch.cancel()
        self.kill()
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()

    async def _restart(self) -> None:
        while True:
            await asyncio.sleep(0.005)
            if self._process.poll() is not None:
                self.num_deaths += 1
                note_at(self._address).tell_end(was_killed(self._process.returncode))
                self._process = start(self._address, *self._public)


def stuck_at(address: str) -> Path:
    return Path(address.removeprefix("ipc://") + ".stuck")


class _Poisonable(LedgerRunner):
    def submit(self, plan: StepPlan) -> None:
        if any(POISON in chunk.request.prompt for chunk in plan.chunks):
            os.kill(os.getpid(), signal.SIGBUS)
        if any(chunk.start == 0 and chunk.request.prompt[0] == STUCK for chunk in plan.chunks):
            stuck_at(sys.argv[1]).touch()
            signal.sigwait({signal.SIGUSR1})
        super().submit(plan)


class _Doorkeeper(QueuedWork):
    def added(self, samples: tuple[Request, ...], now: float) -> None:
        super().added(samples, now)
        if any(BAD_AT_DOOR in request.prompt for request in samples):
            os.kill(os.getpid(), signal.SIGBUS)


def _moves(
    engine: Engine, host: HostMemory, path: Path, key: str = "", pieces_at: str = "tcp://127.0.0.1:*", told: str = ""
) -> Moves:
    """With a cluster key each has a folder of its own, as on a machine of its own."""
    folder = pieces_of(path) if key else path.parent / "pieces"
    folder.mkdir(exist_ok=True)
    curve = Curve(key) if key else None
    address = None if curve is None else PieceServer(folder, pieces_at, curve).address
    fetcher = Fetcher(folder, PieceClient(curve))
    return Moves(engine, host, Shelf(folder, 1 << 20), "ledger", fetcher, told or address)


def pieces_of(path: Path) -> Path:
    return path.parent / f"pieces-{path.name}"


def main(address: str, *public: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    path = Path(address.removeprefix("ipc://"))
    switchboard = ledger_switchboard(
        _Poisonable, max_model_len=100_000, num_blocks=25_000, num_host_blocks=1000,
        make_moves=lambda engine, host: _moves(engine, host, path, *public[1:]),
    )  # fmt: skip
    note = note_at(address)
    engine = switchboard.engine
    endpoint = (public[0], Curve(public[1])) if public else None
    engine.runner = NotedRunner(engine.runner, note, switchboard.recipients.keys_of)
    engine.observer = queued = _Doorkeeper()  # type: ignore[abstract]  # what it does not override does nothing
    EngineProcess(
        address, switchboard, viewed(engine), info_of(switchboard), note=note, public=endpoint, queued=queued
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
