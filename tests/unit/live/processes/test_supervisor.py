"""The supervisor, watched from outside: processes that start, die, are restarted, drain and end together."""

import operator
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from chairlift.live.processes import child
from chairlift.live.processes.child import Child, was_killed
from chairlift.live.processes.supervisor import MAX_DEATHS
from fakes.patience import HANG_S, wait_until
from fakes.processes import is_alive

_PATH = ":".join(str(Path(__file__).parents[4] / name) for name in ("src", "tests"))


class SmallServer:
    def __init__(self, behaviour: str, scratch: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fakes.small_server", behaviour, str(scratch)],
            env=os.environ | {"PYTHONPATH": _PATH},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.scratch = scratch
        self.lines: list[str] = []
        self.pids: dict[str, int] = {}

    def read_until(self, start: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            name, _, rest = self.lines[-1].partition(" ")
            if name in ("engine", "front-end"):
                self.pids[name] = int(rest)
            if line.startswith(start):
                return self.lines[-1]
        raise AssertionError(f"ended without {start!r}: {self.lines}")

    def end(self) -> int:
        self.read_rest()
        return self.process.wait(HANG_S)

    def read_rest(self) -> None:
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().splitlines()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[type[SmallServer]]:
    started: list[SmallServer] = []

    def begin(behaviour: str) -> SmallServer:
        started.append(SmallServer(behaviour, tmp_path / "engine"))
        return started[-1]

    yield begin  # type: ignore[misc]
    for server in started:
        for pid in (server.process.pid, *server.pids.values()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.process.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()


def wait_gone(*pids: int) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), lambda: "processes are left behind")


def test_the_engines_own_words_reach_the_parent_when_it_cannot_start(start) -> None:
    server = start("engine refuses")
    assert server.end() == 2
    assert server.lines[-1] == "error: the weights are not there"
    assert not any("Traceback" in line for line in server.lines)


def test_an_engine_that_dies_while_starting_ends_the_server_with_the_reason(start) -> None:
    server = start("engine dies at once")
    assert server.end() == 2
    assert server.lines[-1] == "error: the engine died while starting (killed by SIGKILL)"


@pytest.mark.skipif(sys.platform != "linux", reason="only there a process can name itself")
def test_each_process_bears_the_name_of_what_it_does(start) -> None:
    server = start("")
    server.read_until("ready: a summary")
    assert Path(f"/proc/{server.pids['engine']}/comm").read_text() == "cl-engine\n"
    assert Path(f"/proc/{server.pids['front-end']}/comm").read_text().startswith("cl-front-end")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (-signal.SIGKILL, True),
        (-signal.SIGTERM, True),
        (0, True),
        (-signal.SIGSEGV, False),
        (-signal.SIGABRT, False),
        (-signal.SIGBUS, False),
        (1, False),
    ],
)
def test_an_exit_code_says_whether_a_process_was_killed_from_outside(code: int, expected: bool) -> None:
    assert was_killed(code) is expected


def test_an_engine_that_dies_later_is_started_again(start) -> None:
    server = start("")
    server.read_until("ready: a summary")
    first = server.pids["engine"]
    os.kill(first, signal.SIGKILL)
    assert server.read_until("the engine died") == "the engine died (killed by SIGKILL); starting it again"
    server.read_until("told: killed")
    assert re.fullmatch(r"the engine is ready again after \d+\.\d s", server.read_until("the engine is ready again"))
    assert server.pids["engine"] != first
    assert is_alive(server.pids["front-end"])


def test_an_engine_that_is_not_what_it_was_is_told_of(start) -> None:
    server = start("engine changes")
    server.read_until("ready: a summary")
    os.kill(server.pids["engine"], signal.SIGKILL)
    assert server.read_until("the engine is ready again").endswith(" s, but not as it was: another summary")


def test_an_engine_that_keeps_dying_without_progress_ends_the_server(start) -> None:
    server = start("")
    server.read_until("ready")
    for _ in range(MAX_DEATHS - 1):
        os.kill(server.pids["engine"], signal.SIGKILL)
        server.read_until("the engine is ready again")
    os.kill(server.pids["engine"], signal.SIGKILL)
    assert server.end() == 2
    assert server.lines[-1] == f"error: the engine died {MAX_DEATHS} times in a row without any progress; giving up"
    wait_gone(*server.pids.values())


def test_an_engine_that_hangs_is_killed_and_counts_as_crashed(start) -> None:
    server = start("engine hangs")
    server.read_until("ready")
    first = server.pids["engine"]
    died = server.read_until("the engine died")
    assert died == "the engine died (it hung: no sign of life for 0 s); starting it again"
    assert server.read_until("told") == "told: crashed"
    assert not is_alive(first)
    assert server.end() == 2
    assert server.lines[-1] == f"error: the engine died {MAX_DEATHS} times in a row without any progress; giving up"


def test_a_front_end_that_hangs_is_killed_and_started_again(start) -> None:
    server = start("front end hangs")
    server.read_until("ready")
    engine, first = server.pids["engine"], server.pids["front-end"]
    died = "the front end 0 died (it hung: no sign of life for 0 s) with 3 requests in flight; starting it again"
    assert server.read_until("the front end 0 died") == died
    server.read_until("front-end")
    assert not is_alive(first)
    assert server.pids["engine"] == engine
    assert is_alive(engine)
    os.kill(server.process.pid, signal.SIGTERM)  # another that hangs does not keep the server from its end
    assert server.end() == 0


def test_an_engine_that_makes_progress_may_die_as_often_as_it_likes(start) -> None:
    server = start("engine makes progress")
    server.read_until("ready")
    for _ in range(MAX_DEATHS + 1):
        os.kill(server.pids["engine"], signal.SIGKILL)
        server.read_until("the engine is ready again")


def test_deaths_while_it_is_started_again_count_too(start) -> None:
    server = start("engine dies when started again")
    server.read_until("ready")
    os.kill(server.pids["engine"], signal.SIGKILL)
    assert server.end() == 2
    assert server.lines[-1].startswith("error: the engine died")
    assert sum("starting it again" in line for line in server.lines) == MAX_DEATHS
    wait_gone(*server.pids.values())


def test_a_front_end_that_dies_is_cleared_up_after_and_started_again(start) -> None:
    server = start("")
    server.read_until("ready")
    first = dict(server.pids)
    os.kill(first["front-end"], signal.SIGKILL)
    died = "the front end 0 died (killed by SIGKILL) with 3 requests in flight; starting it again"
    assert server.read_until("the front end 0 died") == died
    server.read_until("the front end 0 is ready again")
    assert server.pids["front-end"] != first["front-end"]
    assert server.pids["engine"] == first["engine"]
    assert is_alive(first["engine"])


def test_an_engine_that_dies_while_front_ends_finish_is_started_again(start) -> None:
    server = start("front end drains")
    server.read_until("ready")
    os.kill(server.process.pid, signal.SIGTERM)
    server.read_until("finishing")
    os.kill(server.pids["engine"], signal.SIGKILL)
    server.read_until("the engine is ready again")
    server.scratch.with_name("has-all").touch()
    assert server.end() == 0
    assert "drained" in server.lines
    wait_gone(*server.pids.values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_front_ends_finish_what_they_have_begun(start, number: int) -> None:
    server = start("front end drains")
    server.read_until("ready")
    os.kill(server.process.pid, number)
    assert "once more to stop at once" in server.read_until("finishing")
    server.scratch.with_name("has-all").touch()
    server.read_until("drained")
    assert server.end() == 0
    wait_gone(*server.pids.values())


def test_a_server_with_nothing_to_finish_just_ends(start) -> None:
    server = start("front end ends in no hurry")
    server.read_until("ready")
    os.kill(server.process.pid, signal.SIGTERM)
    assert server.end() == 0
    assert not any("finishing" in line for line in server.lines)


def test_signals_in_quick_succession_while_the_engine_starts_are_one(start) -> None:
    server = start("engine takes long")
    server.read_until("front-end")
    if "engine" not in server.pids:
        server.read_until("engine")
    for _ in range(50):
        if server.process.poll() is not None:
            break
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.001)
    assert server.end() == 0
    assert not any("Traceback" in line for line in server.lines), server.lines
    wait_gone(*server.pids.values())


def test_a_second_signal_ends_everything_at_once(start) -> None:
    server = start("front end never drains")
    server.read_until("ready")
    os.kill(server.process.pid, signal.SIGTERM)
    server.read_until("told")
    os.kill(server.process.pid, signal.SIGTERM)
    assert server.end() == 0
    wait_gone(*server.pids.values())


def test_a_signal_while_the_engine_starts_ends_everything_at_once(start) -> None:
    server = start("engine takes long")
    server.read_until("front-end")
    if "engine" not in server.pids:
        server.read_until("engine")
    os.kill(server.process.pid, signal.SIGTERM)
    assert server.end() == 0
    wait_gone(*server.pids.values())


def test_when_the_parent_is_killed_its_children_end(start) -> None:
    server = start("")
    server.read_until("ready")
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    wait_gone(*server.pids.values())


def test_a_child_whose_parent_was_killed_during_the_start_does_not_begin(monkeypatch) -> None:
    monkeypatch.setattr(child, "_prctl", lambda option, value: None)
    monkeypatch.setattr(child.multiprocessing, "parent_process", lambda: psutil.Process(1))
    monkeypatch.setattr(child.os, "getppid", lambda: 2)
    with pytest.raises(SystemExit):
        child._child(None, "engine", lambda *_: pytest.fail("it has begun"), ())


@pytest.mark.parametrize("number", child.GROUP_SIGNALS)
def test_a_child_ignores_signals_to_the_group_even_while_it_starts(
    capfd: pytest.CaptureFixture[str], number: int
) -> None:
    begun = Child("engine", operator.call, "here")  # which reports that
    while not begun.pipe.poll(0.002):
        os.kill(begun.pid, number)
    assert begun.wait_ready() == "here"
    begun.process.join()
    assert begun.process.exitcode == 0
    begun.close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", child.GROUP_SIGNALS)
def test_the_parent_gets_signals_that_came_while_it_started_a_child(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    heard: list[int] = []
    real = child.SpawnProcess.start

    def start(process: child.SpawnProcess) -> None:
        os.kill(os.getpid(), number)
        real(process)

    monkeypatch.setattr(child.SpawnProcess, "start", start)
    before = signal.signal(number, lambda number, _: heard.append(number))
    try:
        started = Child("engine", operator.call, "here")
    finally:
        signal.signal(number, before)
    assert heard == [number]
    assert started.wait_ready() == "here"
    started.kill()
    started.close()
