import socket
import sys

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.server.listen import listen


def close(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("count", [1, 3])
def test_all_listen_on_one_port(host: str, count: int) -> None:
    listeners = listen(host, 0, count)
    assert len(listeners) == count
    assert len({listener.getsockname() for listener in listeners}) == 1
    close(listeners)


@pytest.mark.parametrize("theirs", [1, 2])
@pytest.mark.parametrize("ours", [1, 2])
def test_a_port_that_another_server_has_is_refused(ours: int, theirs: int) -> None:
    listeners = listen("127.0.0.1", 0, theirs)
    port = listeners[0].getsockname()[1]
    with pytest.raises(InvalidConfig, match=f"port {port}: Address already in use"):
        listen("127.0.0.1", port, ours)
    close(listeners)
    close(listen("127.0.0.1", port, ours))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere front ends share a socket")
def test_connections_are_dealt_between_front_ends() -> None:
    listeners = listen("127.0.0.1", 0, 2)
    clients = [socket.create_connection(listeners[0].getsockname()) for _ in range(100)]
    assert all(_num_waiting(listener) > 20 for listener in listeners)
    close(clients + listeners)


def _num_waiting(listener: socket.socket) -> int:
    listener.setblocking(False)
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1
