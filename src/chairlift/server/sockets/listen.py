"""The one listening socket of all front ends: a front end that hangs takes no connection from the others, and a port in
use is known before anything else starts."""

import contextlib
import ipaddress
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
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


@contextlib.contextmanager
def listening_at(path: Path) -> Iterator[socket.socket]:
    """A Unix socket, whose file is there as long as it is used. One that a killed server has left is replaced."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            if _is_left(path):
                path.unlink()
            listener.bind(str(path))
            listener.listen(_BACKLOG)
        except OSError as error:
            raise InvalidConfig(
                f"cannot listen on {path}: {error.strerror or error}; choose another with --uds"
            ) from error
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _is_left(path: Path) -> bool:
    """Whether it is a socket that no process listens on."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False


def network_of(peer: Any) -> str:
    """The network of one client: an IPv4 address, or an IPv6 /64, which one may hold. Empty without an address."""
    if not isinstance(peer, tuple):
        return ""
    address = ipaddress.ip_address(peer[0].partition("%")[0])
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address.ipv4_mapped if address.version == 6 else address)
