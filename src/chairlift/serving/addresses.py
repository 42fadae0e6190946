"""Addresses between machines: which port is free, and which of this machine's addresses another one reaches."""

import socket

from chairlift.core.errors import InvalidConfig

ANY = "*"
LAST_PORT = 65535


def split(address: str) -> tuple[str, int]:
    """Host and port of what `host_port` accepts; no host: all addresses."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") or ANY, int(port)


def tcp(host: str, port: int) -> str:
    return f"tcp://{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """As it stands before a port."""
    return f"[{host}]" if ":" in host else host


def after(address: str, count: int) -> str:
    """The port so many after that of a TCP address; any free one where there is none."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + count if int(port) + count <= LAST_PORT else ANY}"


def claim(host: str, port: int, option: str) -> tuple[str, int]:
    """A numeric host and a port that can be listened on; 0: any free one. The port is free again when this returns."""
    try:
        found = socket.getaddrinfo(
            None if host == ANY else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, where = found[0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(where)
            return (host if host == ANY else str(where[0])), int(trial.getsockname()[1])
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not the name of a host"
        raise InvalidConfig(f"cannot listen on {host} port {port}: {why}; choose another with {option}") from error


def facing(host: str, port: int) -> str:
    """This machine's address as the other one sees it."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as trial:
            trial.connect(where)  # sends nothing
            return str(trial.getsockname()[0])
    except (OSError, UnicodeError) as error:
        raise InvalidConfig(f"--join {host}:{port}: no way there: {error}; check the name and the network") from error
