"""Addresses between machines."""

import socket

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.serving.addresses import after, claim, facing, split, tcp


def test_addresses_are_split_and_joined() -> None:
    assert split(":7000") == ("*", 7000)
    assert split("[fd00::1]:7000") == ("fd00::1", 7000)
    assert tcp(*split("[fd00::1]:7000")) == "tcp://[fd00::1]:7000"
    assert tcp(*split("host:1")) == "tcp://host:1"


def test_a_free_port_is_found_and_a_taken_one_refused() -> None:
    host, port = claim("localhost", 0, "--address HOST:PORT")
    assert host in ("127.0.0.1", "::1")
    assert port > 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match=rf"port {number}: .*--address HOST:PORT"):
            claim("127.0.0.1", number, "--address HOST:PORT")


def test_the_address_that_faces_another_machine() -> None:
    assert facing("127.0.0.1", 7000) == "127.0.0.1"
    with pytest.raises(InvalidConfig, match="--join no.such.host.invalid:7000"):
        facing("no.such.host.invalid", 7000)


def test_ports_after_another() -> None:
    assert after("tcp://*:7000", 1) == "tcp://*:7001"
    assert after("tcp://[::1]:65535", 1) == "tcp://[::1]:*"
