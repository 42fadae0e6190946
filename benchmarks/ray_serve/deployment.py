"""A Ray Serve deployment for `beside.py`: the paced engine without a model, streamed as Ray Serve streams.

Every step gives each running request its next event, as that of `front_end/engine.py` does; requests beyond the most
that may run wait. Events are made beforehand: nothing is read from the request but how many tokens are wanted, and no
text is made of tokens, which our own front end does. Events that wait for a slow reader go out together.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator

from ray import serve
from starlette.requests import Request
from starlette.responses import StreamingResponse

_DONE = b"data: [DONE]\n\n"


class _Stream:
    def __init__(self, place: int, num_left: int) -> None:
        self.place, self.num_left = place, num_left
        self._ready: list[bytes] = []
        self._wake = asyncio.Event()

    def put(self, event: bytes) -> None:
        self._ready.append(event)
        self.place += 1
        self.num_left -= 1
        self._wake.set()

    async def get(self) -> bytes:
        await self._wake.wait()
        data = b"".join(self._ready)
        self._ready.clear()
        self._wake.clear()
        return data

    @property
    def is_over(self) -> bool:
        return not self.num_left and not self._ready


@serve.deployment(max_ongoing_requests=100_000, ray_actor_options={"num_cpus": 1})
class Paced:
    def __init__(self, events: list[bytes], max_running: int, step_s: float) -> None:
        self._events, self._max_running, self._step_s = events, max_running, step_s
        self._running: list[_Stream] = []
        self._waiting: deque[_Stream] = deque()
        self._asked = asyncio.Event()
        self._num_asked = 0
        self._stepping = asyncio.get_running_loop().create_task(self._steps())

    async def __call__(self, request: Request) -> StreamingResponse:
        self._num_asked += 1
        stream = _Stream(31 * self._num_asked, (await request.json())["max_tokens"])
        self._waiting.append(stream)
        self._asked.set()
        return StreamingResponse(self._body(stream), media_type="text/event-stream")

    async def _body(self, stream: _Stream) -> AsyncIterator[bytes]:
        while not stream.is_over:
            yield await stream.get()
        yield _DONE

    async def _steps(self) -> None:
        due = 0.0
        while True:
            if not (self._running or self._waiting):
                self._asked.clear()
                await self._asked.wait()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(time.monotonic(), due + self._step_s)
            while self._waiting and len(self._running) < self._max_running:
                self._running.append(self._waiting.popleft())
            for stream in self._running:
                stream.put(self._events[stream.place % len(self._events)])
            self._running = [stream for stream in self._running if stream.num_left]
