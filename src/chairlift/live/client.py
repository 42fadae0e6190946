"""The front end's end of the wire: submit a request, read its outputs as they come.

Always: a generation ends by itself, by its owner's abort, or with `EngineUnavailable` when the engine goes away; none
waits for ever. When the engine comes back, so does the client.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator

import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from chairlift.core.errors import EngineUnavailable
from chairlift.core.params import SamplingParams
from chairlift.live.messages import Abort, EngineInfo, FromEngine, Hello, Output, Ready, Step, Submit, ToEngine


class Generation:
    """The outputs of one request, all samples together."""

    def __init__(self, client: "EngineClient", key: int, num_samples: int) -> None:
        self._client = client
        self._key = key
        self._open = set(range(num_samples))  # samples whose last output has not been read or aborted
        self._outputs: deque[Output] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._lost: str | None = None

    def __aiter__(self) -> AsyncIterator[Output]:
        return self

    async def __anext__(self) -> Output:
        while self._open:
            if self._outputs:
                output = self._outputs.popleft()
                if output.sample not in self._open:
                    continue
                if output.finish is not None:
                    self._close(output.sample)
                return output
            if self._lost is not None:
                self._open.clear()
                raise EngineUnavailable(self._lost)
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        raise StopAsyncIteration

    def abort(self) -> None:
        """Frees the request in the engine; may be called at any time and more than once."""
        if self._open:
            self._open.clear()
            self._client.abort(self._key, None)

    def abort_sample(self, sample: int) -> None:
        """Frees one sample, whose text is complete before its tokens are."""
        if sample in self._open:
            self._close(sample)
            self._client.abort(self._key, sample)

    def _close(self, sample: int) -> None:
        self._open.discard(sample)
        if not self._open:
            self._client.forget(self._key)

    def put(self, output: Output) -> None:
        self._outputs.append(output)
        self._notify()

    def lose(self, reason: str) -> None:
        self._lost = reason
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class EngineClient:
    def __init__(self, address: str, name: str) -> None:
        self.info: EngineInfo | None = None
        self.num_running = 0
        self.num_waiting = 0
        self._address = address
        self._name = name.encode()
        self._socket: zmq.asyncio.Socket | None = None
        self._is_ready = asyncio.Event()
        self._generations: dict[int, Generation] = {}
        self._keys = itertools.count(1)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(FromEngine)

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        *,
        cache_salt: str = "",
        priority: int = 0,
        user: str = "",
        deadline_s: float | None = None,
    ) -> Generation:
        if self.info is None:
            raise EngineUnavailable("the engine is not ready; try again in a moment")
        key = next(self._keys)
        generation = self._generations[key] = Generation(self, key, params.num_samples)
        self._send(Submit(key, prompt, params, cache_salt, 0, priority, user, deadline_s))
        return generation

    def abort(self, key: int, sample: int | None) -> None:
        if sample is None:
            self.forget(key)
        if self.info is not None:
            self._send(Abort(key, sample))

    def forget(self, key: int) -> None:
        self._generations.pop(key, None)

    async def until_ready(self) -> None:
        await self._is_ready.wait()

    async def run(self) -> None:
        """Stays connected until cancelled."""
        context = zmq.asyncio.Context.instance()
        while True:
            socket = context.socket(zmq.DEALER)
            socket.setsockopt(zmq.IDENTITY, self._name)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.RCVHWM, 0)
            socket.setsockopt(zmq.LINGER, 0)
            monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            socket.connect(self._address)
            self._socket = socket
            self._send(Hello())
            reader = asyncio.ensure_future(self._read(socket))
            gone = asyncio.ensure_future(_until_disconnected(monitor))
            try:
                await asyncio.wait([reader, gone], return_when=asyncio.FIRST_COMPLETED)
                if reader.done():
                    reader.result()  # a broken wire is a bug: let it show
            finally:
                reader.cancel()
                gone.cancel()
                self._lose_all("the engine went away; try again in a moment")
                socket.disable_monitor()
                monitor.close()
                socket.close()

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            message = self._decoder.decode(await socket.recv())
            if isinstance(message, Step):
                self.num_running, self.num_waiting = message.num_running, message.num_waiting
                for output in message.outputs:
                    generation = self._generations.get(output.key)
                    if generation is not None:
                        generation.put(output)
            elif isinstance(message, Ready):
                self.info = message.info
                self._is_ready.set()

    def _lose_all(self, reason: str) -> None:
        self.info = None
        self._is_ready.clear()
        self.num_running = self.num_waiting = 0
        lost, self._generations = self._generations, {}
        for generation in lost.values():
            generation.lose(reason)

    def _send(self, message: ToEngine) -> None:
        assert self._socket is not None
        self._socket.send(self._encoder.encode(message))


async def _until_disconnected(monitor: zmq.asyncio.Socket) -> None:
    await recv_monitor_message(monitor)
