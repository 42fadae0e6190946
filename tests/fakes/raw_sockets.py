"""What comes back on a connection that HTTP libraries would not make, and where none is made yet."""

import contextlib
import socket


def free_address() -> str:
    """On which nothing listens at present."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{trial.getsockname()[1]}"


def everything(sock: socket.socket) -> bytes:
    """What comes until the server ends the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(65536):
            parts.append(part)
    return b"".join(parts)
