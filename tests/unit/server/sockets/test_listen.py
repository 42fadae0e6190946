import socket
from pathlib import Path

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.server.sockets.listen import listen, listening_at, network_of


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_port_is_found(host: str) -> None:
    with listen(host, 0) as listener:
        assert listener.getsockname()[1] > 0


def test_a_port_that_another_server_has_is_refused() -> None:
    with listen("127.0.0.1", 0) as theirs:
        port = theirs.getsockname()[1]
        with pytest.raises(InvalidConfig, match=f"port {port}: Address already in use"):
            listen("127.0.0.1", port)
    listen("127.0.0.1", port).close()


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        (("192.0.2.7", 1234), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1234, 0, 0), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 1234, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1234, 0, 2), "fe80::/64"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_client_is_known_by_what_it_may_have_to_itself(peer: object, network: str) -> None:
    assert network_of(peer) == network


def test_a_unix_socket_is_there_while_it_is_used_and_replaces_one_that_was_left(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with listening_at(path) as listener:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        with (
            pytest.raises(InvalidConfig, match="Address already in use; choose another with --uds"),
            listening_at(path),
        ):
            pass
        assert listener.family == socket.AF_UNIX
    assert not path.exists()


def test_a_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidConfig, match="choose another with --uds"), listening_at(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "mine"
