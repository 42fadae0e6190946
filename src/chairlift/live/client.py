"""The front end's end of the wire: submit a request, and hear of its outputs as they come.

Always: a request ends by itself, by its owner's abort, or with `EngineUnavailable` when the engine goes away; none
waits for ever. When the engine comes back, so does the client. Outputs are handed out where they arrive, by a call and
without a task between; a listener that fails loses its own request and no other.
"""

import asyncio
import itertools
from collections import deque
from typing import Protocol

import msgspec
import zmq

from chairlift.core.errors import EngineUnavailable
from chairlift.core.params import SamplingParams
from chairlift.live.messages import Abort, EngineInfo, FromEngine, Hello, Output, Step, Submit, ToEngine


class Listener(Protocol):
    """Who asked for a request. Nothing comes after the last output of its last sample, nor after `fail`."""

    def put(self, output: Output) -> None: ...

    def fail(self, error: Exception) -> None: ...


class Generation:
    """One request in the engine, all samples together. While it is held, what comes is kept for later."""

    __slots__ = ("_client", "_held", "_is_held", "_key", "_listener", "_lost", "_open")

    def __init__(self, client: "EngineClient", key: int, num_samples: int, listener: Listener) -> None:
        self._client = client
        self._key = key
        self._listener = listener
        self._open = set(range(num_samples))  # samples whose last output has not been handed out or aborted
        self._held: deque[Output] = deque()
        self._is_held = False
        self._lost: Exception | None = None

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

    def hold(self) -> None:
        self._is_held = True

    def release(self) -> None:
        """Hands out what was kept; the listener may hold it again meanwhile."""
        self._is_held = False
        while self._held and not self._is_held:
            self._hand_out(self._held.popleft())
        if self._lost is not None and not self._is_held:
            self._fail(self._lost)

    def put(self, output: Output) -> None:
        if self._is_held:
            self._held.append(output)
        else:
            self._hand_out(output)

    def lose(self, error: Exception) -> None:
        self._lost = error
        if not self._is_held:
            self._fail(error)

    def _hand_out(self, output: Output) -> None:
        if output.sample not in self._open:
            return
        if output.finish is not None:
            self._close(output.sample)
        try:
            self._listener.put(output)
        except Exception as error:
            self.abort()
            self._listener.fail(error)

    def _fail(self, error: Exception) -> None:
        if self._open:
            self._open.clear()
            self._listener.fail(error)

    def _close(self, sample: int) -> None:
        self._open.discard(sample)
        if not self._open:
            self._client.forget(self._key)


class EngineClient:
    def __init__(self, address: str, name: str) -> None:
        self.info: EngineInfo | None = None
        self.num_running = 0
        self.num_waiting = 0
        self._address = address
        self._name = name.encode()
        self._socket: zmq.Socket[bytes] | None = None
        self._over: asyncio.Future[None]  # done when the engine has gone away
        self._will_read = False
        self._is_ready = asyncio.Event()
        self._generations: dict[int, Generation] = {}
        self._keys = itertools.count(1)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(FromEngine)

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        listener: Listener,
        *,
        cache_salt: str = "",
        priority: int = 0,
        user: str = "",
        deadline_s: float | None = None,
        expires: float | None = None,
    ) -> Generation:
        if self.info is None:
            raise EngineUnavailable("the engine is not ready; try again in a moment")
        key = next(self._keys)
        generation = self._generations[key] = Generation(self, key, params.num_samples, listener)
        self._send(Submit(key, prompt, params, cache_salt, 0, priority, user, deadline_s, expires))
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
        while True:
            await self._connect()

    async def _connect(self) -> None:
        """Returns when the engine has gone away; a broken wire is a bug, and raises."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, self._name)
        for option in (zmq.SNDHWM, zmq.RCVHWM, zmq.LINGER):
            socket.setsockopt(option, 0)
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        socket.connect(self._address)
        self._socket = socket
        loop.add_reader(socket, self._read)
        loop.add_reader(monitor, self._watch, monitor)
        try:
            self._send(Hello())
            self._watch(monitor)
            await self._over
        finally:
            loop.remove_reader(socket)
            loop.remove_reader(monitor)
            self._socket = None
            self._lose_all("the engine went away; try again in a moment")
            socket.disable_monitor()
            monitor.close()
            socket.close()

    def _read(self) -> None:
        """Takes one message; whatever else is due in this process has its turn before the next."""
        self._will_read = False
        if self._socket is None or not _has_message(self._socket):
            return
        try:
            self._hear(self._decoder.decode(self._socket.recv(zmq.NOBLOCK)))
        except Exception as error:
            self._end(error)
        self._read_soon()

    def _read_soon(self) -> None:
        # A file becomes readable only after its socket was found empty, and sending may take the sign away: so whoever
        # uses the socket looks again, until there is nothing.
        if not self._will_read:
            self._will_read = True
            asyncio.get_running_loop().call_soon(self._read)

    def _hear(self, message: FromEngine) -> None:
        if isinstance(message, Step):
            self.num_running, self.num_waiting = message.num_running, message.num_waiting
            generations = self._generations
            for output in message.outputs:
                generation = generations.get(output.key)
                if generation is not None:
                    generation.put(output)
        else:
            self.info = message.info
            self._is_ready.set()

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        if _has_message(monitor):
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._over.done():
            return
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)

    def _lose_all(self, reason: str) -> None:
        self.info = None
        self._is_ready.clear()
        self.num_running = self.num_waiting = 0
        lost, self._generations = self._generations, {}
        for generation in lost.values():
            generation.lose(EngineUnavailable(reason))

    def _send(self, message: ToEngine) -> None:
        assert self._socket is not None
        self._socket.send(self._encoder.encode(message), zmq.NOBLOCK)
        self._read_soon()


def _has_message(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)
