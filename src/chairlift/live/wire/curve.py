"""Sockets between machines: encrypted, and open only to those that have the cluster key (CURVE).

Always: both ends prove that they have the key before a byte of a message passes. What fails at that is turned away,
counted, and told in one line. A peer that is silent for `SILENT_S` is gone, also while it computes: the library's own
thread answers heartbeats.
"""

import logging
import threading
import time
from hashlib import blake2b
from typing import Any, ClassVar

import zmq
from zmq.utils import z85

from chairlift.core.errors import InvalidConfig

SILENT_S = 3.0
_MAX_SENT = 256 * 2**20  # bytes of a message from the end that was connected to, which has proved its key
MAX_HEARD = 32 * 2**20  # and from one that connects, which may not have yet
_BEAT_S = 0.5
_HANDSHAKE_S = 10.0
_CONNECT_S = 3.0
_RECONNECT_S = 0.2
_TELL_S = 10.0  # between two lines about those turned away
_ZAP = "inproc://zeromq.zap.01"  # where the library asks
TURNED_AWAY = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_log = logging.getLogger(__name__)


class Curve:
    """The key pair that all members of a cluster take from its one key."""

    def __init__(self, key: str) -> None:
        """`key`: as `read_key` returns it."""
        self._secret = z85.encode(blake2b(bytes.fromhex(key), digest_size=32, person=b"chairlift curve").digest())
        self.public: bytes = zmq.curve_public(self._secret)

    def listen(self, socket: "zmq.Socket[Any]", address: str, option: str, max_bytes: int = MAX_HEARD) -> None:
        """Binds a socket that only members reach. `option`: the way out where the port is taken. `max_bytes`: of a
        message."""
        self.guard(socket, address, max_bytes)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            raise InvalidConfig(
                f"cannot listen on {address}: {error.strerror}; choose another with {option}"
            ) from error

    def guard(self, socket: "zmq.Socket[Any]", address: str, max_bytes: int = MAX_HEARD) -> None:
        """Lets only members reach a socket that is to be bound."""
        gate = Gate.of(socket.context, self.public)
        self._set_up(socket, max_bytes)
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        gate.watch(socket, address)

    def connect(self, socket: "zmq.Socket[Any]", address: str, max_bytes: int = _MAX_SENT) -> None:
        self._set_up(socket, max_bytes)
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.public)
        socket.setsockopt(zmq.RECONNECT_IVL, round(1000 * _RECONNECT_S))
        socket.setsockopt(zmq.CONNECT_TIMEOUT, round(1000 * _CONNECT_S))
        socket.connect(address)

    def _set_up(self, socket: "zmq.Socket[Any]", max_bytes: int) -> None:
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._secret)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, max_bytes)
        socket.setsockopt(zmq.HANDSHAKE_IVL, round(1000 * _HANDSHAKE_S))
        socket.setsockopt(zmq.HEARTBEAT_IVL, round(1000 * _BEAT_S))
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, round(1000 * SILENT_S))
        socket.setsockopt(zmq.HEARTBEAT_TTL, round(1000 * SILENT_S))


class Gate:
    """Answers the library's question whether a peer may come in, for all sockets of a context, in a thread."""

    _gates: ClassVar[dict[int, "Gate"]] = {}  # by context

    @classmethod
    def of(cls, context: "zmq.Context[zmq.Socket[bytes]]", public: bytes) -> "Gate":
        """The one of this context; a context has one key."""
        gate = cls._gates.get(id(context))
        if gate is None or gate._context.closed:
            gate = cls._gates[id(context)] = cls(context, public)
        assert gate._public == public
        return gate

    @classmethod
    def num_turned_away_by_all(cls) -> int:
        """By all sockets of this process."""
        return sum(gate.num_turned_away for gate in list(cls._gates.values()))

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", public: bytes) -> None:
        self.num_turned_away = 0
        self._context, self._public = context, public
        self._questions: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._questions.setsockopt(zmq.LINGER, 0)
        self._questions.bind(_ZAP)
        self._new: list[tuple[zmq.Socket[bytes], str]] = []  # monitors to watch
        self._told = -_TELL_S
        threading.Thread(target=self._run, daemon=True).start()

    def watch(self, socket: "zmq.Socket[Any]", address: str) -> None:
        """Counts the peers that this socket turns away."""
        self._new.append((socket.get_monitor_socket(TURNED_AWAY), address))

    def _run(self) -> None:
        poller, monitors = zmq.Poller(), dict[zmq.Socket[bytes], str]()
        poller.register(self._questions, zmq.POLLIN)
        try:
            while True:
                while self._new:
                    monitor, address = self._new.pop()
                    monitors[monitor] = address
                    poller.register(monitor, zmq.POLLIN)
                for socket, _ in poller.poll(1000):
                    if socket is self._questions:
                        self._answer()
                    else:
                        socket.recv_multipart()
                        self._turn_away(monitors[socket])
        except zmq.ZMQError:  # the context is closed
            self._questions.close()

    def _answer(self) -> None:
        version, number, _domain, _address, _identity, mechanism, *credentials = self._questions.recv_multipart()
        is_member = mechanism == b"CURVE" and [z85.encode(key) for key in credentials] == [self._public]
        status = (b"200", b"OK") if is_member else (b"400", b"not a member")
        self._questions.send_multipart([version, number, *status, b"", b""])

    def _turn_away(self, address: str) -> None:
        self.num_turned_away += 1
        if time.monotonic() - self._told >= _TELL_S:
            self._told = time.monotonic()
            _log.warning(
                "a connection to %s was turned away: it has no cluster key, or another one, or broke off (%d so far); "
                "give it the same --cluster-key file",
                address,
                self.num_turned_away,
            )
