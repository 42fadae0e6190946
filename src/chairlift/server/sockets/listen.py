"""The socket that front ends take connections from.

All share one, so a front end that hangs takes no connection from the others. A port that is taken is known before
anything else is begun.
"""

import contextlib
import ipaddress
import socket
from typing import Any

from chairlift.core.errors import InvalidConfig

_BACKLOG = 4096


def listen(host: str, port: int, option: str = "") -> socket.socket:
    """`option` is what comes before `host` and `port` in the names of the settings."""
    with contextlib.ExitStack() as undo:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(_BACKLOG)
        except (OSError, UnicodeError) as error:  # the second for a name that no host can have
            why = error.strerror if isinstance(error, OSError) else "not the name of a host"
            raise InvalidConfig(
                f"cannot listen on {host} port {port}: {why}; choose another with --{option}host or --{option}port"
            ) from error
        undo.pop_all()
    return listener


def network_of(peer: Any) -> str:
    """What belongs to one client, by the address that its connection comes from: an IPv4 address or an IPv6 /64, of
    which one client may have every address. Empty where there is none, as for sockets that are files."""
    if not isinstance(peer, tuple):
        return ""
    address = ipaddress.ip_address(peer[0].partition("%")[0])
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address.ipv4_mapped if address.version == 6 else address)
