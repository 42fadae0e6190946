import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.server.sockets.listen import listen, network_of


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
