"""The one listening socket of all front ends: a front end that hangs takes no connection from the others, and a port in
use is known before anything else starts."""

import contextlib
import ipaddress
import socket
from typing import Any

from chairlift.core.errors import InvalidConfig

_BACKLOG = 4096


def listen(host: str, port: int, option: str = "") -> socket.socket:
    """`option`: the prefix of `host` and `port` in the settings' names."""
    with contextlib.ExitStack() as undo:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(_BACKLOG)
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
            why = error.strerror if isinstance(error, OSError) else "not the name of a host"
            raise InvalidConfig(
                f"cannot listen on {host} port {port}: {why}; choose another with --{option}host or --{option}port"
            ) from error
        undo.pop_all()
    return listener


def network_of(peer: Any) -> str:
    """The network of one client: an IPv4 address, or an IPv6 /64, which one may hold. Empty without an address."""
    if not isinstance(peer, tuple):
        return ""
    address = ipaddress.ip_address(peer[0].partition("%")[0])
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address.ipv4_mapped if address.version == 6 else address)
