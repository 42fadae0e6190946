"""The front end's side of the live page: one viewer, latency breakdowns of single requests, and the
replica that is seen.

Always: a viewer sees every engine that comes, and learns when one is gone; a question is answered, with None when the
engine does not know the request or is gone. Both cost the engine milliseconds: questions go to it one at a time with a
pause between, and it is asked for the whole view once a second at most. Of several replicas one is seen.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from chairlift.live.wire.messages import Explain, Explained, Snapshot, Watch

PAUSE_S = 0.2
LOOK_PAUSE_S = 1.0


class Viewer(Protocol):
    def put(self, snapshot: Snapshot) -> None: ...

    def lose(self) -> None:
        """The engine is gone; the next one sends a whole snapshot."""
        ...


class WatchClient:
    def __init__(self, send: Callable[[Watch | Explain], bool]) -> None:
        """`send` is False when there is no engine."""
        self._send = send
        self._viewer: Viewer | None = None
        self._asked: tuple[int, asyncio.Future[bytes | None]] | None = None
        self._turn = asyncio.Lock()
        self._may_ask = 0.0  # the earliest time
        self._may_look = 0.0  # likewise
        self._look_later: asyncio.TimerHandle | None = None

    def begin(self, viewer: Viewer) -> None:
        """A whole snapshot comes soon, also for a viewer that began before."""
        self._viewer = viewer
        loop = asyncio.get_running_loop()
        if loop.time() >= self._may_look:
            self._look()
        elif self._look_later is None:
            self._look_later = loop.call_at(self._may_look, self._look)

    def end(self) -> None:
        self._viewer = None
        self._send(Watch(False))

    def _look(self) -> None:
        self._look_later = None
        if self._viewer is not None:
            self._may_look = asyncio.get_running_loop().time() + LOOK_PAUSE_S
            self._send(Watch(True))

    async def explain(self, request: int) -> bytes | None:
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(self._may_ask - loop.time())
            self._may_ask = loop.time() + PAUSE_S
            answer: asyncio.Future[bytes | None] = loop.create_future()
            self._asked = request, answer
            if not self._send(Explain(request)):
                return None
            return await answer

    def hear(self, message: Snapshot | Explained) -> None:
        if isinstance(message, Explained):
            self._answer(message.request, message.data)
        elif self._viewer is not None:
            self._viewer.put(message)

    def resume(self) -> None:
        """There is an engine."""
        if self._viewer is not None:
            self._send(Watch(True))

    def lose(self) -> None:
        if self._asked is not None:
            self._answer(self._asked[0], None)
        if self._viewer is not None:
            self._viewer.lose()

    def _answer(self, request: int, data: bytes | None) -> None:
        if self._asked is not None and self._asked[0] == request and not self._asked[1].done():
            self._asked[1].set_result(data)


class Watched:
    """Which of several replicas the live page shows: the first that is there, and another once that is gone."""

    def __init__(self, send: Callable[[int, Watch | Explain], bool]) -> None:
        """`send` is False when the replica is not there."""
        self.client = WatchClient(self._send_to_it)
        self.replica: int | None = None  # None: none is there
        self._send = send

    def _send_to_it(self, message: Watch | Explain) -> bool:
        return self.replica is not None and self._send(self.replica, message)

    def come(self, replica: int) -> None:
        if self.replica is None:
            self.replica = replica
            self.client.resume()

    def go(self, replica: int, others: list[int]) -> None:
        """`others`: that are there."""
        if replica == self.replica:
            self.replica = None
            self.client.lose()
            for other in others[:1]:
                self.come(other)

    def hear(self, replica: int, message: Snapshot | Explained) -> None:
        if replica == self.replica:
            self.client.hear(message)
