"""An engine process on the ledger runner, for tests that need one to kill or to measure."""

import subprocess
import sys
from pathlib import Path

from chairlift.live.engine_process import EngineProcess
from fakes.switchboards import info_of, ledger_switchboard

_FOLDERS = Path(__file__).parents[1], Path(__file__).parents[2] / "src"


def start(address: str) -> subprocess.Popen[bytes]:
    path = ":".join(map(str, _FOLDERS))
    return subprocess.Popen([sys.executable, "-m", "fakes.ledger_process", address], env={"PYTHONPATH": path})


def main(address: str) -> None:
    switchboard = ledger_switchboard(max_model_len=100_000, num_blocks=25_000)
    EngineProcess(address, switchboard, info_of(switchboard)).run()


if __name__ == "__main__":
    main(sys.argv[1])
