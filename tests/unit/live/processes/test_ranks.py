"""Rank processes: started, told, watched, and ended with the process that started them."""

import os
import queue
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.live.processes.child import Child, Died
from chairlift.live.processes.ranks import RankProcesses
from fakes.patience import HANG_S, wait_until
from fakes.processes import is_alive
from fakes.rank_mains import die, echo, refuse

ROOT = Path(__file__).parents[4]
# A script without a guard for its main part, as a user of the Python interface writes one.
SCRIPT = """
import sys, time
from pathlib import Path
from chairlift.live.processes.ranks import RankProcesses
from fakes.rank_mains import echo
pipes = RankProcesses(3, echo, Path(sys.argv[1])).ready(lambda child: None)
print("ready", flush=True)
time.sleep(600) if sys.argv[2:] else None
"""


def written(folder: Path, index: int) -> tuple[int, bytes]:
    """A rank's process id, and what it was sent."""
    path = folder / f"rank-{index}"
    wait_until(lambda: path.exists() and b"," in path.read_bytes())
    pid, _, rest = path.read_bytes().partition(b",")
    return int(pid), rest


def test_every_rank_gets_what_is_sent_and_ends_in_silence_when_its_pipe_is_closed(tmp_path: Path) -> None:
    dead: queue.Queue[Child] = queue.Queue()
    ranks = RankProcesses(3, echo, tmp_path)
    pipes = ranks.ready(dead.put)
    for pipe in pipes:
        pipe.send_bytes(b"step 1")
        pipe.close()
    pids = [written(tmp_path, index)[0] for index in (1, 2)]
    wait_until(lambda: not any(map(is_alive, pids)))
    assert [written(tmp_path, index)[1] for index in (1, 2)] == [b"step 1", b"step 1"]
    assert dead.empty()
    assert not ranks.store.parent.exists()


def test_a_death_is_told_with_its_cause(tmp_path: Path) -> None:
    dead: queue.Queue[Child] = queue.Queue()
    ranks = RankProcesses(3, echo, tmp_path)
    pipes = ranks.ready(dead.put)
    os.kill(written(tmp_path, 2)[0], signal.SIGKILL)
    child = dead.get(timeout=HANG_S)
    assert (child.name, child.describe_end(), len(pipes)) == ("rank 2", "killed by SIGKILL", 2)
    assert not ranks.store.parent.exists()
    ranks.end()
    assert not is_alive(written(tmp_path, 1)[0])


def test_a_rank_that_cannot_start_says_why(tmp_path: Path) -> None:
    refusing, dying = RankProcesses(3, refuse, tmp_path), RankProcesses(2, die, tmp_path)
    with pytest.raises(InvalidConfig, match=r"^rank \d has no memory left$"):
        refusing.ready(lambda _: None)
    with pytest.raises(Died, match=r"^the rank 1 died while starting \(exit code 3\)$"):
        dying.ready(lambda _: None)
    refusing.end()
    dying.end()


@pytest.mark.parametrize("is_killed", [True, False])
def test_no_rank_outlives_the_script_that_started_it(tmp_path: Path, is_killed: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    arguments = [sys.executable, script, tmp_path, *["wait"] * is_killed]
    environment = os.environ | {"PYTHONPATH": paths}
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        pids = [written(tmp_path, index)[0] for index in (1, 2)]
        if is_killed:
            process.kill()
        process.wait(HANG_S)
    wait_until(lambda: not any(map(is_alive, pids)))
