"""Pieces between machines: an engine sends parts of its files to engines that ask for them, a few parts at a time.

    [name, offset, length]  ->  [offset] and bytes; no bytes: there is no such part
    [name]                      the piece is not needed any more

Always: a target asks for no more than `_WINDOW` parts ahead, so neither side holds much beside the piece. With a
cluster key both ends prove that they have it (CURVE). Sockets are made by `_make`, in a context of their own: its
threads encrypt pieces, and tokens do not wait for them.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec
import zmq

from chairlift.core.errors import InvalidConfig
from chairlift.live.moving.ticket import MoveFailed, is_name
from chairlift.live.wire.curve import TURNED_AWAY, Curve

_PART = 1 << 20  # bytes
_WINDOW = 8
_NUM_THREADS = 4  # of the library
_MAX_ASK = 1024  # bytes of a message to a source
STALL_S = 3.0  # without a part
_AVOIDED_S = 10.0  # a source that could not be reached
_BROKEN = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED | TURNED_AWAY
_SERVER = "tcp://*:"  # of an engine that is reached as its server is
_log = logging.getLogger(__name__)


class Ask(msgspec.Struct, array_like=True, frozen=True):
    name: str
    offset: int = 0
    length: int = 0  # 0: it is not needed any more


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Its bytes follow as they are."""

    offset: int


@cache
def _context() -> "zmq.Context[zmq.Socket[bytes]]":
    return zmq.Context(_NUM_THREADS)


def _make(kind: int) -> "zmq.Socket[bytes]":
    socket = _context().socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 2 * _WINDOW)
    return socket


class PieceServer:
    """Sends the pieces of a folder, in a thread of its own."""

    def __init__(self, folder: Path, address: str, curve: Curve | None = None) -> None:
        """`address`: to listen on, such as tcp://127.0.0.1:*; where its port is taken, another."""
        self._folder = folder
        self._socket = _make(zmq.ROUTER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _MAX_ASK)
        if curve is not None:
            curve.guard(self._socket, address, _MAX_ASK)
        self.address = _bind(self._socket, address)
        threading.Thread(target=self._run, name="pieces", daemon=True).start()

    def _run(self) -> None:
        ask = msgspec.msgpack.Decoder(Ask)
        while True:
            to, *parts = self._socket.recv_multipart()
            try:
                asked = ask.decode(parts[0] if len(parts) == 1 else b"")
            except msgspec.MsgspecError:
                continue  # not from an engine
            if asked.length:
                header = msgspec.msgpack.encode(Part(asked.offset))
                self._socket.send_multipart([to, header, self._read(asked)], copy=False)
            elif is_name(asked.name):
                (self._folder / asked.name).unlink(missing_ok=True)

    def _read(self, asked: Ask) -> bytes:
        """Nothing where there is no such part."""
        if not is_name(asked.name):
            return b""
        try:
            with (self._folder / asked.name).open("rb") as file:
                return os.pread(file.fileno(), max(0, min(asked.length, _PART)), max(0, asked.offset))
        except (OSError, OverflowError):
            return b""


def _bind(socket: "zmq.Socket[bytes]", address: str) -> str:
    """Where it can be reached: the host as it was given, and the port."""
    host, _, port = address.rpartition(":")
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        if port == "*":
            raise InvalidConfig(f"cannot listen on {address}, for keys and values: {error.strerror}") from error
        _log.info("port %s is taken; keys and values are sent from another", port)
        return _bind(socket, f"{host}:*")
    return f"{host}:{socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(':')[2]}"


class PieceClient:
    """Asks other engines for pieces; several threads may at once."""

    def __init__(self, curve: Curve | None = None, server: str = "127.0.0.1") -> None:
        """`server`: the host for addresses without one; its own engines have such."""
        self._curve, self._server = curve, server
        self._avoided: dict[str, float] = {}  # sources that could not be reached, and until when

    def fetch(self, address: str, name: str, num_bytes: int, deadline: float) -> bytearray:
        """A whole piece; raises MoveFailed if it does not come in time."""
        if time.monotonic() < self._avoided.get(address, 0.0):
            raise MoveFailed(f"{address} could not be reached just now")
        try:
            with self._connected(address) as (socket, monitor):
                return _fetch(socket, monitor, name, num_bytes, deadline)
        except _Unreachable as error:
            now = time.monotonic()
            self._avoided = {each: until for each, until in list(self._avoided.items()) if until > now}
            self._avoided[address] = now + _AVOIDED_S
            raise MoveFailed(f"{address} {error}") from error
        except MoveFailed as error:
            raise MoveFailed(f"{address} {error}") from error

    @contextmanager
    def _connected(self, address: str) -> "Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]":
        """A socket, and one that says when it is broken."""
        if address.startswith(_SERVER):
            address = f"tcp://{self._server}:{address.removeprefix(_SERVER)}"
        with _make(zmq.DEALER) as socket:
            monitor = socket.get_monitor_socket(_BROKEN)
            try:
                if self._curve is None:
                    socket.setsockopt(zmq.MAXMSGSIZE, 2 * _PART)
                    socket.connect(address)
                else:
                    self._curve.connect(socket, address, 2 * _PART)
                yield socket, monitor
            except zmq.ZMQError as error:  # no address
                raise MoveFailed(f"cannot be connected to: {error.strerror}") from error
            finally:
                socket.disable_monitor()
                monitor.close()


class _Unreachable(MoveFailed):
    """A source that need not be asked again soon."""


def _fetch(
    socket: "zmq.Socket[bytes]", monitor: "zmq.Socket[bytes]", name: str, num_bytes: int, deadline: float
) -> bytearray:
    decoder = msgspec.msgpack.Decoder(Part)
    piece, offsets = bytearray(num_bytes), range(0, num_bytes, _PART)
    for offset in offsets[:_WINDOW]:
        _ask(socket, name, offset, num_bytes)
    began = time.monotonic()
    for num_parts in range(len(offsets)):
        _wait(socket, monitor, deadline)
        header, *data = socket.recv_multipart()
        try:
            offset = decoder.decode(header).offset
        except msgspec.MsgspecError as error:
            raise MoveFailed("sent no part of a piece") from error
        if len(data) != 1 or offset not in offsets or len(data[0]) != min(_PART, num_bytes - offset):
            raise MoveFailed("does not have the piece any more")
        piece[offset : offset + len(data[0])] = data[0]
        if num_parts + _WINDOW < len(offsets):
            _ask(socket, name, offsets[num_parts + _WINDOW], num_bytes)
        _check_pace(began, (num_parts + 1) / len(offsets), deadline)
    _send(socket, Ask(name))
    socket.setsockopt(zmq.LINGER, 1000)
    return piece


def _wait(socket: "zmq.Socket[bytes]", monitor: "zmq.Socket[bytes]", deadline: float) -> None:
    """For the next part."""
    left_s = min(deadline - time.monotonic(), STALL_S)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(monitor, zmq.POLLIN)
    happened = dict(poller.poll(max(0, int(1000 * left_s) + 1)))
    if socket in happened:
        return
    if happened:
        raise _Unreachable("cannot be reached, or has ended")
    if time.monotonic() >= deadline:
        raise MoveFailed("did not send it in time")
    raise _Unreachable(f"was silent for {STALL_S:.0f} s")


def _check_pace(began: float, share: float, deadline: float) -> None:
    """Gives up early what would be late."""
    took_s = time.monotonic() - began
    if took_s > STALL_S and began + took_s / share > deadline:
        raise MoveFailed(f"sends too slowly: {share:.0%} in {took_s:.0f} s")


def _ask(socket: "zmq.Socket[bytes]", name: str, offset: int, num_bytes: int) -> None:
    _send(socket, Ask(name, offset, min(_PART, num_bytes - offset)))


def _send(socket: "zmq.Socket[bytes]", ask: Ask) -> None:
    try:
        socket.send(msgspec.msgpack.encode(ask), zmq.NOBLOCK)  # else it waits for ever where the connection has broken
    except zmq.Again as error:
        raise _Unreachable("cannot be reached, or has ended") from error
