"""The sockets that front ends take connections from.

Always: all listen on one port, which nobody else has; a port that is taken is known before anything else is begun. On
Linux each front end has a socket of its own, between which the kernel deals new connections evenly: on one that is
shared, whoever wakes first takes most of a burst. Elsewhere they share one.
"""

import contextlib
import socket
import sys
from typing import Any

from chairlift.core.errors import InvalidConfig

_BACKLOG = 4096


def listen(host: str, port: int, count: int) -> list[socket.socket]:
    """One socket for each of `count` front ends."""
    with contextlib.ExitStack() as undo:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            first = undo.enter_context(_bound(family, (host, port)))
            listeners = [first]
            if sys.platform == "linux" and count > 1:
                # Only after it is bound: a port that anybody has is refused, and from here on it is refused to others.
                first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                address = first.getsockname()
                listeners += [undo.enter_context(_bound(family, address, True)) for _ in range(count - 1)]
            for listener in listeners:
                listener.listen(_BACKLOG)
        except (OSError, UnicodeError) as error:  # the second for a name that no host can have
            why = error.strerror if isinstance(error, OSError) else "not the name of a host"
            raise InvalidConfig(
                f"cannot listen on {host} port {port}: {why}; choose another with --host or --port"
            ) from error
        undo.pop_all()
    return listeners if len(listeners) == count else listeners * count


def _bound(family: int, address: Any, shares: bool = False) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener
