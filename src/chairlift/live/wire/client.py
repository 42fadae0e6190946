"""The front end's side of the wire: submits requests and hands out their outputs.

Always: a request outlives the engine. Its tokens are kept here, and the next engine goes on from them; requests that
come in between wait for it. A request ends by itself, by an abort, by ending the engine again and again, or with
`EngineUnavailable` when no engine will come. Outputs are handed out where they arrive, by a call and without a task
between; a listener that fails loses its own request and no other.
"""

import asyncio
import itertools
import secrets
import time
from collections import deque
from dataclasses import replace
from typing import Protocol

import msgspec
import zmq
from msgspec.structs import replace as replace_fields

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.errors import ChairliftError, EngineUnavailable
from chairlift.core.params import SamplingParams
from chairlift.live.recovery.suspicion import Suspicion
from chairlift.live.wire import messages
from chairlift.live.wire.messages import Output, Submit
from chairlift.live.wire.watch_client import WatchClient

_RECONNECT_MS = 20
MAX_HELD = 2**20  # outputs held for slow clients in one front end, some 160 MB at most
_PROVEN = "this request ended the engine {}, each time with nothing else in flight; it is not tried again"


class TooSlow(ChairliftError):
    """A request was ended because its client did not read its outputs."""


class Listener(Protocol):
    """Gets the outputs of a request. Nothing comes after the last output of its last sample, nor after `fail`."""

    def put(self, output: Output) -> None: ...

    def fail(self, error: Exception) -> None: ...


class Generation:
    """One request with all its samples, across engines. While it is held, its outputs are kept for later.

    `Listener.fail` gets `EngineUnavailable` when no engine will come. A request that the engine refuses or fails, or
    that ends the engine, ends with an output whose `finish` is "error".
    """

    __slots__ = (
        "_asked", "_client", "_held", "_is_held", "_key", "_listener", "_lost", "_open", "_submit", "_suspicion",
        "_tokens", "num_made",
    )  # fmt: skip

    def __init__(self, client: "EngineClient", submit: Submit, listener: Listener) -> None:
        self._client = client
        self._submit = submit
        self.num_made = 0  # tokens, handed out or held
        self._asked = time.monotonic()
        self._key = submit.key
        self._listener = listener
        samples = range(submit.params.num_samples)
        self._open = set(samples)  # samples whose last output was not handed out or aborted
        self._tokens: dict[int, list[int]] = {i: [] for i in samples}  # of samples that the engine has not ended
        self._suspicion: Suspicion | None = None
        self._held: deque[Output] = deque()
        self._is_held = False
        self._lost: Exception | None = None

    def abort(self) -> None:
        """Frees the request in the engine; at any time, and more than once."""
        if self._open:
            self._open.clear()
            self._tokens.clear()
            self._drop_held()
            self._client.abort(self._key, None)

    def abort_sample(self, sample: int) -> None:
        """Frees one sample, whose text is complete before its tokens."""
        if sample in self._open:
            self._close(sample)
            self._tokens.pop(sample, None)
            self._client.abort(self._key, sample)

    def hold(self) -> None:
        self._is_held = True

    def release(self) -> None:
        """Hands out what was held; the listener may hold it again meanwhile."""
        self._is_held = False
        while self._held and not self._is_held:
            self._client.num_held -= 1
            self._hand_out(self._held.popleft())
        if self._lost is not None and not self._is_held:
            self._fail(self._lost)

    def put(self, output: Output) -> None:
        tokens = self._tokens.get(output.sample)
        if tokens is None:  # aborted meanwhile
            return
        if output.token is not None:
            tokens.append(output.token)
            self.num_made += 1
        elif output.prompt_scores is not None:
            self._submit = messages.with_scored_prompt(self._submit)
        if output.finish is not None:
            del self._tokens[output.sample]
        if not self._is_held:
            self._hand_out(output)
        elif self._client.num_held < MAX_HELD:
            self._client.num_held += 1
            self._held.append(output)
        else:
            self.abort()
            self._listener.fail(TooSlow("more waits for clients that read slowly than can be kept"))

    def resume(self, is_suspect: bool, ready: messages.Ready) -> Submit | None:
        """The message for the next engine, if anything is left to do; the one before died, perhaps busy with this."""
        suspicion = self._suspicion = self._suspicion or (Suspicion() if is_suspect else None)
        if suspicion is not None:
            suspicion.look({sample: len(tokens) for sample, tokens in self._tokens.items()})
            if is_suspect:
                suspicion.add(ready.is_alone, ready.was_killed)
        if suspicion is not None and suspicion.is_proven:
            num = suspicion.num_alone
            error = _PROVEN.format("twice" if num == 2 else f"{num} times")
            for sample in list(self._tokens):
                self.put(Output(self._key, sample, None, "error", error=error))
            self._client.tell_proven()
        if not self._tokens:
            return None
        message = messages.resumed(self._submit, self._tokens, time.monotonic() - self._asked)
        if suspicion is not None and suspicion.is_strong:
            return replace_fields(message, num_alone=suspicion.num_alone)
        return message

    def lose(self, error: Exception) -> None:
        self._lost = error
        self._tokens.clear()
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
            self._drop_held()
            self._listener.fail(error)

    def _drop_held(self) -> None:
        self._client.num_held -= len(self._held)
        self._held.clear()

    def _close(self, sample: int) -> None:
        self._open.discard(sample)
        if not self._open:
            self._client.forget(self._key)


class EngineClient:
    def __init__(self, address: str, name: str) -> None:
        self.info: messages.EngineInfo | None = None  # of the last engine
        self.num_running = 0
        self.num_waiting = 0
        self.num_held = 0  # outputs held for slow clients
        self.watching = WatchClient(self._send_if_ready)
        self._address = address
        self._name = name.encode()
        self._socket: zmq.Socket[bytes] | None = None
        self._over: asyncio.Future[None]  # done when the engine is gone
        self._will_read = False
        self._is_ready = asyncio.Event()
        self._generations: dict[int, Generation] = {}
        self._keys = itertools.count(1)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(messages.FromEngine)

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        max_output: int,
        listener: Listener,
        *,
        attributes: Attributes = NO_ATTRIBUTES,
        expires: float | None = None,
        name: str = "",
        is_traced: bool = False,
    ) -> Generation:
        """Sends a request that fits the engine (`output_room`). Raises `EngineUnavailable` before the first engine and
        after the last. The listener is not called before this returns."""
        if self.info is None:
            raise EngineUnavailable("the engine is not ready; try again in a moment")
        if params.seed is None and not params.is_greedy:  # here, so that every engine samples the same
            params = replace(params, seed=secrets.randbits(64))
        key = next(self._keys)
        submit = Submit(key, prompt, params, max_output, attributes, expires, name, is_traced)
        generation = self._generations[key] = Generation(self, submit, listener)
        if self.is_ready:
            self._send(submit)
        return generation

    def abort(self, key: int, sample: int | None) -> None:
        if sample is None:
            self.forget(key)
        if self.is_ready:
            self._send(messages.Abort(key, sample))

    def tell_proven(self) -> None:
        self._send(messages.Proven())

    def forget(self, key: int) -> None:
        self._generations.pop(key, None)

    @property
    def is_ready(self) -> bool:
        """Whether there is an engine now; without one, requests wait for the next."""
        return self._is_ready.is_set()

    async def until_ready(self) -> None:
        await self._is_ready.wait()

    def give_up(self) -> None:
        """No engine will come: requests fail, waiting ones and later ones."""
        self.info = None
        lost, self._generations = self._generations, {}
        for generation in lost.values():
            generation.lose(EngineUnavailable("the engine went away; try again in a moment"))

    async def run(self) -> None:
        """Stays connected until cancelled."""
        while True:
            await self._connect()

    async def _connect(self) -> None:
        """Returns when the engine is gone; a broken wire is a bug, and raises."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, self._name)
        for option in (zmq.SNDHWM, zmq.RCVHWM, zmq.LINGER):
            socket.setsockopt(option, 0)
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        socket.connect(self._address)
        self._socket = socket
        loop.add_reader(socket, self._read)
        loop.add_reader(monitor, self._watch, monitor)
        try:
            self._send(messages.Hello())
            self._watch(monitor)
            await self._over
        finally:
            loop.remove_reader(socket)
            loop.remove_reader(monitor)
            self._socket = None
            self._is_ready.clear()
            self.num_running = self.num_waiting = 0
            self.watching.lose()
            socket.disable_monitor()
            monitor.close()
            socket.close()

    def _read(self) -> None:
        """Takes one message; other callbacks of the loop run before the next."""
        self._will_read = False
        if self._socket is None or not _has_message(self._socket):
            return
        try:
            self._hear(self._decoder.decode(self._socket.recv(zmq.NOBLOCK)))
        except Exception as error:
            if not self._over.done():
                self._over.set_exception(error)
        self._read_soon()

    def _read_soon(self) -> None:
        # The socket's file becomes readable only after the socket was found empty, and sending may clear the sign: so
        # look again after each use, until there is nothing.
        if not self._will_read:
            self._will_read = True
            asyncio.get_running_loop().call_soon(self._read)

    def _hear(self, message: messages.FromEngine) -> None:
        if isinstance(message, messages.Step):
            self.num_running, self.num_waiting = message.num_running, message.num_waiting
            generations = self._generations
            for output in message.outputs:
                generation = generations.get(output.key)
                if generation is not None:
                    generation.put(output)
        elif isinstance(message, messages.Snapshot | messages.Explained):
            self.watching.hear(message)
        else:
            self._resume(message)
            self.watching.resume()

    def _resume(self, ready: messages.Ready) -> None:
        """Sends all open requests, in order of arrival."""
        self.info = ready.info
        self._is_ready.set()
        suspects = set(ready.suspects)
        for key, generation in list(self._generations.items()):
            message = generation.resume(key in suspects, ready)
            if message is not None:
                self._send(message)

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        if _has_message(monitor) and not self._over.done():
            self._over.set_result(None)

    def _send_if_ready(self, message: messages.Watch | messages.Explain) -> bool:
        if self.is_ready:
            self._send(message)
        return self.is_ready

    def _send(self, message: messages.ToEngine) -> None:
        assert self._socket is not None
        self._socket.send(self._encoder.encode(message), zmq.NOBLOCK)
        self._read_soon()


def _has_message(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)
