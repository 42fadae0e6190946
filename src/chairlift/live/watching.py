"""The front end's side of watching the engine: one viewer, and questions about single requests.

Always: a viewer that has begun to look is shown every engine that comes, and told when one goes; a question is
answered, with None when the engine does not know, or is gone.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from chairlift.live.messages import Explain, Explained, Snapshot, Watch


class Viewer(Protocol):
    def put(self, snapshot: Snapshot) -> None: ...

    def lose(self) -> None:
        """The engine is gone; when there is another, a whole snapshot comes."""
        ...


class Watching:
    def __init__(self, send: Callable[[Watch | Explain], bool]) -> None:
        """`send` is False when there is no engine."""
        self._send = send
        self._viewer: Viewer | None = None
        self._asked: dict[int, list[asyncio.Future[bytes | None]]] = {}

    def begin(self, viewer: Viewer) -> None:
        """The next snapshot is a whole one; also for a viewer that has begun before."""
        self._viewer = viewer
        self._send(Watch(True))

    def end(self) -> None:
        self._viewer = None
        self._send(Watch(False))

    async def explain(self, request: int) -> bytes | None:
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(request, []).append(answer)
        if not self._send(Explain(request)):
            self.lose()
        return await answer

    def hear(self, message: Snapshot | Explained) -> None:
        if isinstance(message, Explained):
            self._answer(message.request, message.data)
        elif self._viewer is not None:
            self._viewer.put(message)

    def go_on(self) -> None:
        """There is an engine."""
        if self._viewer is not None:
            self._send(Watch(True))

    def lose(self) -> None:
        for request in list(self._asked):
            self._answer(request, None)
        if self._viewer is not None:
            self._viewer.lose()

    def _answer(self, request: int, data: bytes | None) -> None:
        for answer in self._asked.pop(request, ()):
            if not answer.done():
                answer.set_result(data)
