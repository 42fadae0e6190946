import socket
from threading import Thread

import pytest

from chairlift.lab.bench import probe
from chairlift.lab.bench.target import Address
from chairlift.lab.contest.client import check_route


def test_an_answer_without_an_end_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_TIMEOUT_S", 2.0)

    def answer(listener: socket.socket) -> None:
        with listener.accept()[0] as client:
            client.sendall(b"HTTP/1.1 422 Unprocessable Entity\r\nContent-Type: text/event-stream\r\n\r\ndata:")
            while client.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=answer, args=(listener,))
        server.start()
        check_route(Address("127.0.0.1", listener.getsockname()[1]))
        server.join()
