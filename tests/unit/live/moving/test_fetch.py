"""How pieces travel between engines, on one machine and over real sockets, and what becomes of those that do not."""

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
import zmq
from msgspec.structs import replace

from chairlift.live.moving import sockets
from chairlift.live.moving.fetch import Fetcher
from chairlift.live.moving.shelf import Shelf
from chairlift.live.moving.sockets import Ask, Part, PieceClient, PieceServer
from chairlift.live.moving.ticket import MoveFailed, Ticket
from chairlift.live.wire.curve import Curve, Gate
from fakes.patience import HANG_S, wait_until

DATA = bytes(range(256)) * 50_000  # more parts than are asked for at once
CURVE, OTHER = Curve("11" * 32), Curve("22" * 32)


def filled(data: bytes, view: memoryview) -> None:
    view[:] = data


def on_shelf(folder: Path, address: str | None = None) -> Ticket:
    piece = Shelf(folder, 1 << 30).put(len(DATA), partial(filled, DATA))
    return Ticket(piece.path.name, "", 1, b"", piece.num_bytes, piece.checksum, address)


def fetched(ticket: Ticket, fetcher: Fetcher, wait_s: float = HANG_S) -> bytes:
    taken: list[bytes] = []
    fetcher.fetch(ticket, time.monotonic() + wait_s, lambda data: taken.append(bytes(data)))
    return taken[0]


Way = Callable[[Path], tuple[Fetcher, str | None]]


def mapped(folder: Path) -> tuple[Fetcher, str | None]:
    return Fetcher(folder), None


def plain(folder: Path) -> tuple[Fetcher, str | None]:
    return Fetcher(None), PieceServer(folder, "tcp://127.0.0.1:*").address


def encrypted(folder: Path) -> tuple[Fetcher, str | None]:
    return Fetcher(None, PieceClient(CURVE)), PieceServer(folder, "tcp://127.0.0.2:*", CURVE).address


def test_a_piece_that_comes_too_late_is_gone(tmp_path: Path) -> None:
    with pytest.raises(MoveFailed, match="too late"):
        fetched(on_shelf(tmp_path), Fetcher(tmp_path), wait_s=-1.0)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("way", [mapped, plain, encrypted])
def test_a_piece_is_fetched_once_and_is_gone(tmp_path: Path, way: Way) -> None:
    fetcher, address = way(tmp_path)
    ticket = on_shelf(tmp_path, address)
    assert fetched(ticket, fetcher) == DATA
    wait_until(lambda: not list(tmp_path.iterdir()))
    with pytest.raises(MoveFailed):
        fetched(ticket, fetcher)


@pytest.mark.parametrize("way", [mapped, plain, encrypted])
def test_bytes_that_were_changed_are_refused(tmp_path: Path, way: Way) -> None:
    fetcher, address = way(tmp_path)
    ticket = on_shelf(tmp_path, address)
    with (tmp_path / ticket.name).open("r+b") as file:
        file.seek(12_345)
        file.write(b"?")
    with pytest.raises(MoveFailed, match="not those"):
        fetched(ticket, fetcher)


@pytest.mark.parametrize("way", [mapped, plain])
@pytest.mark.parametrize("name", ["../{}/secret", "secret", "/etc/passwd", ""])
def test_no_other_files_are_read(tmp_path: Path, way: Way, name: str) -> None:
    fetcher, address = way(tmp_path)
    (tmp_path / "secret").write_bytes(DATA)
    with pytest.raises(MoveFailed, match="names no piece"):
        fetched(replace(on_shelf(tmp_path, address), name=name.format(tmp_path.name)), fetcher)


def test_a_server_sends_and_removes_no_other_files(tmp_path: Path) -> None:
    address = PieceServer(tmp_path, "tcp://127.0.0.1:*").address
    (tmp_path / "secret").write_bytes(DATA)
    with zmq.Context.instance().socket(zmq.DEALER) as forger:
        forger.connect(address)
        forger.send(b"what")
        forger.send_multipart([b"two", b"parts"])
        for ask in (Ask("secret"), Ask("secret", 0, 9), Ask("0" * 32, -5, 9), Ask("0" * 32, 1 << 62, -9)):
            forger.send(msgspec.msgpack.encode(ask))
        for _ in range(3):
            assert forger.poll(1000 * HANG_S)
            assert forger.recv_multipart()[1] == b""
    assert (tmp_path / "secret").read_bytes() == DATA


@pytest.mark.parametrize("curve", [None, OTHER])
def test_a_piece_is_not_sent_without_the_key(
    tmp_path: Path, curve: Curve | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "STALL_S", 0.5)
    address = PieceServer(tmp_path, "tcp://127.0.0.1:*", CURVE).address
    before, ticket = Gate.num_turned_away_by_all(), on_shelf(tmp_path, address)

    def is_counted() -> bool:
        with pytest.raises(MoveFailed, match="reached|silent"):
            fetched(ticket, Fetcher(None, PieceClient(curve)))
        return Gate.num_turned_away_by_all() > before

    wait_until(is_counted)  # one that gave up before it was heard is not


def test_a_source_that_is_gone_is_given_up_at_once_and_avoided_for_a_while(tmp_path: Path) -> None:
    ticket, fetcher = on_shelf(tmp_path, "tcp://127.0.0.1:1"), Fetcher(None)
    with pytest.raises(MoveFailed, match="cannot be reached"):
        fetched(ticket, fetcher)
    with pytest.raises(MoveFailed, match="just now"):
        fetched(ticket, fetcher)


class Source:
    """Answers as it is told to, for as many parts as it is told to."""

    def __init__(self, answer: Callable[[Ask], list[bytes]], num_parts: int = 1 << 30, wait_s: float = 0.0) -> None:
        self._answer, self._num_parts, self._wait_s = answer, num_parts, wait_s
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self.address = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.is_over, self.is_cut = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self.is_cut.is_set():
            if self._socket.poll(10) and self._num_parts:
                to, data = self._socket.recv_multipart()
                self.is_over.wait(self._wait_s)
                self._socket.send_multipart([to, *self._answer(msgspec.msgpack.decode(data, type=Ask))])
                self._num_parts -= 1
        self._socket.close()

    def end(self) -> None:
        self.is_over.set()
        self.is_cut.set()
        self._thread.join()


def right(ask: Ask) -> list[bytes]:
    return [msgspec.msgpack.encode(Part(ask.offset)), DATA[ask.offset : ask.offset + ask.length]]


@pytest.mark.parametrize(
    "answer",
    [
        lambda ask: [b"nonsense", b""],
        lambda ask: [msgspec.msgpack.encode(Part(ask.offset))],
        lambda ask: [msgspec.msgpack.encode(Part(ask.offset)), b"too short"],
        lambda ask: [msgspec.msgpack.encode(Part(ask.offset - 1)), bytes(ask.length)],
        lambda ask: [msgspec.msgpack.encode(Part(1 << 40)), bytes(ask.length)],
        lambda ask: [msgspec.msgpack.encode(Part(0)), bytes(ask.length)],
    ],
)
def test_what_is_no_part_of_the_piece_is_refused(tmp_path: Path, answer: Callable[[Ask], list[bytes]]) -> None:
    source = Source(answer)
    try:
        with pytest.raises(MoveFailed):
            fetched(on_shelf(tmp_path, source.address), Fetcher(None))
    finally:
        source.end()


def test_a_source_that_dies_in_the_middle_is_noticed_at_once(tmp_path: Path) -> None:
    source = Source(right, num_parts=5)
    wait = threading.Thread(target=lambda: (wait_until(lambda: not source._num_parts), source.end()))
    wait.start()
    with pytest.raises(MoveFailed, match="has ended"):
        fetched(on_shelf(tmp_path, source.address), Fetcher(None))
    wait.join()


def test_a_source_that_stops_sending_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "STALL_S", 0.1)
    source = Source(right, num_parts=5)
    try:
        with pytest.raises(MoveFailed, match="silent"):
            fetched(on_shelf(tmp_path, source.address), Fetcher(None))
    finally:
        source.end()


def test_a_slow_source_is_given_up_before_it_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(sockets.time, "monotonic", lambda: now[0])

    def slowly(ask: Ask) -> list[bytes]:
        now[0] += 1.5  # seconds for each of 13 parts
        return right(ask)

    source = Source(slowly)
    try:
        with pytest.raises(MoveFailed, match="too slowly"):
            fetched(on_shelf(tmp_path, source.address), Fetcher(None), wait_s=15.0)
    finally:
        source.end()


def test_a_port_that_is_taken_is_not_insisted_on(tmp_path: Path) -> None:
    first = PieceServer(tmp_path, "tcp://127.0.0.1:*", CURVE)
    second = PieceServer(tmp_path, first.address, CURVE)
    assert second.address != first.address
    assert fetched(on_shelf(tmp_path, second.address), Fetcher(None, PieceClient(CURVE))) == DATA


def test_an_address_without_a_host_is_the_servers(tmp_path: Path) -> None:
    address = PieceServer(tmp_path, "tcp://*:*", CURVE).address
    assert address.startswith("tcp://*:")
    assert fetched(on_shelf(tmp_path, address), Fetcher(None, PieceClient(CURVE, "127.0.0.3"))) == DATA
