"""Addresses in options: which name a machine that others reach."""

import pytest

from chairlift.config.options.values import reached, reached_host


@pytest.mark.parametrize("value", ["10.0.0.1:7000", "node-1:1", "[fd00::1]:65535"])
def test_a_host_and_a_port_are_reached(value: str) -> None:
    assert reached(value) == reached_host(value) == value


@pytest.mark.parametrize("value", [":7000", "*:7000", "0.0.0.0:7000", "[::]:7000", "10.0.0.1:0", "10.0.0.1:99999"])
def test_all_addresses_of_a_machine_or_no_port_are_not(value: str) -> None:
    for parse in (reached, reached_host):
        with pytest.raises(ValueError, match="must "):
            parse(value)


@pytest.mark.parametrize("value", ["10.0.0.1", "node-1", "[fd00::1]"])
def test_a_host_alone_will_do_where_any_port_does(value: str) -> None:
    assert reached_host(value) == value
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        reached(value)
