"""What comes back on a connection that HTTP libraries would not make."""

import contextlib
import socket


def everything(sock: socket.socket) -> bytes:
    """What comes until the server ends the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(65536):
            parts.append(part)
    return b"".join(parts)
