import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.server.listen import listen


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
