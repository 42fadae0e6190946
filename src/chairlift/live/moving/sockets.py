"""Pieces between nodes: an engine sends parts of its files to engines that ask for them, a few parts at a time.

    [name, offset, length]  ->  [offset, bytes]; no bytes: there is no such piece
    [name]                      it is not needed any more

Always: a target asks for no more than `_WINDOW` parts ahead, so neither side holds much beside the piece. Every socket
is made by `make_socket`, the one place where its keys are set.
"""

import os
import re
import threading
import time
from pathlib import Path

import msgspec
import zmq

from chairlift.live.moving.ticket import MoveFailed

_PART = 1 << 20  # bytes
_WINDOW = 8
_NAME = re.compile(r"[0-9a-f]{32}")


class Ask(msgspec.Struct, array_like=True, frozen=True):
    name: str
    offset: int = 0
    length: int = 0  # 0: it is not needed any more


class Part(msgspec.Struct, array_like=True, frozen=True):
    offset: int
    data: bytes


def make_socket(kind: int) -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    return socket


class PieceServer:
    """Sends the pieces of a folder, in a thread of its own."""

    def __init__(self, folder: Path, address: str) -> None:
        """`address`: to listen on, such as tcp://127.0.0.1:*."""
        self._folder = folder
        self._socket = make_socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, 1024)
        self._socket.bind(address)
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        threading.Thread(target=self._run, name="pieces", daemon=True).start()

    def _run(self) -> None:
        ask = msgspec.msgpack.Decoder(Ask)
        while True:
            *to, data = self._socket.recv_multipart()
            try:
                answer = self._answer(ask.decode(data))
            except msgspec.MsgspecError:
                continue  # not from an engine
            if answer is not None:
                self._socket.send_multipart([*to, msgspec.msgpack.encode(answer)])

    def _answer(self, ask: Ask) -> Part | None:
        if not _NAME.fullmatch(ask.name):
            return Part(ask.offset, b"")
        path = self._folder / ask.name
        if not ask.length:
            path.unlink(missing_ok=True)
            return None
        try:
            with path.open("rb") as file:
                return Part(ask.offset, os.pread(file.fileno(), min(ask.length, _PART), max(0, ask.offset)))
        except (OSError, OverflowError, ValueError):  # gone, or no such part
            return Part(0, b"")


def fetched_parts(address: str, name: str, num_bytes: int, deadline: float) -> bytearray:
    """A whole piece; raises MoveFailed if it does not come in time."""
    decoder = msgspec.msgpack.Decoder(Part)
    piece = bytearray(num_bytes)
    with make_socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.MAXMSGSIZE, 2 * _PART)
        socket.connect(address)
        offsets = iter(range(0, num_bytes, _PART))
        missing = len(range(0, num_bytes, _PART))
        for _, offset in zip(range(_WINDOW), offsets, strict=False):
            _ask(socket, name, offset, num_bytes)
        while missing:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not socket.poll(int(1000 * left_s) + 1):
                raise MoveFailed("the piece did not come in time")
            try:
                part = decoder.decode(socket.recv())
            except msgspec.MsgspecError as error:
                raise MoveFailed("the answer is no part of a piece") from error
            if not 0 <= part.offset < num_bytes or len(part.data) != min(_PART, num_bytes - part.offset):
                raise MoveFailed("the piece is gone")
            piece[part.offset : part.offset + len(part.data)] = part.data
            missing -= 1
            offset = next(offsets, -1)
            if offset >= 0:
                _ask(socket, name, offset, num_bytes)
        socket.send(msgspec.msgpack.encode(Ask(name)))
        socket.setsockopt(zmq.LINGER, 1000)
    return piece


def _ask(socket: zmq.Socket[bytes], name: str, offset: int, num_bytes: int) -> None:
    socket.send(msgspec.msgpack.encode(Ask(name, offset, min(_PART, num_bytes - offset))))
