"""One replica where it was placed: a `chairlift node` process, started, watched and started again.

Always: the process ends with this one, and once nobody has looked for `LEASE_S`: the server is gone then. Knows nothing
of Ray, which runs it in an actor.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LEASE_S = 30.0
_PAUSE_S = 2.0  # before the first restart; twice as long before the next
_MAX_PAUSE_S = 60.0
_LONG_LIFE_S = 60.0  # after which the pause is the first again
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class NodeState:
    host: str
    has_left: bool  # it was drained, and has ended
    num_ends: int = 0  # that nobody asked for
    last_line: str = ""  # of what it wrote


class PlacedNode:
    def __init__(
        self, command: Sequence[str], key: str, forsaken: Callable[[], None], lease_s: float = LEASE_S
    ) -> None:
        """`command`: follows the name of the Python that runs here. `forsaken`: called when the lease is over."""
        self._command, self._key, self._forsaken, self._lease_s = [sys.executable, *command], key, forsaken, lease_s
        self._is_leaving = False
        self._num_ends, self._last_line = 0, ""
        self._pause_s, self._due = _PAUSE_S, 0.0
        self._looked = time.monotonic()
        self._lock = threading.Lock()  # the lease ends in a thread of its own
        self._start()
        threading.Thread(target=self._watch_lease, daemon=True).start()

    def look(self) -> NodeState:
        """Renews the lease, and starts the process again if it has died."""
        with self._lock:
            now = self._looked = time.monotonic()
            has_ended = self._process.poll() is not None
            if has_ended and not self._is_leaving:
                self._replace(now)
            return NodeState(socket.gethostname(), has_ended and self._is_leaving, self._num_ends, self._last_line)

    def drain(self) -> None:
        """Its requests move, then it ends, for good."""
        self._is_leaving = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """At once, for good."""
        self._is_leaving = True
        self._process.kill()
        self._process.wait()

    def _replace(self, now: float) -> None:
        if not self._due:  # seen for the first time
            self._num_ends += 1
            if now - self._started >= _LONG_LIFE_S:
                self._pause_s = _PAUSE_S
            self._due = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)
        elif now >= self._due:
            self._due = 0.0
            self._start()

    def _start(self) -> None:
        self._started = time.monotonic()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CHAIRLIFT_")}
        environment["CHAIRLIFT_CLUSTER_KEY"] = self._key  # not among the arguments, which all users can read
        self._process = subprocess.Popen(
            self._command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        threading.Thread(target=self._copy, args=(self._process,), daemon=True).start()

    def _copy(self, process: "subprocess.Popen[str]") -> None:
        """What it writes goes to the log of this process; the last line says why it ended."""
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self._last_line = line.strip() or self._last_line
                sys.stderr.write(line)
                sys.stderr.flush()

    def _watch_lease(self) -> None:
        while (left := self._looked + self._lease_s - time.monotonic()) > 0:
            time.sleep(left)
        with self._lock:
            self.end()
        self._forsaken()


_libc = ctypes.CDLL(None)  # before there is a child, which must not load anything


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
