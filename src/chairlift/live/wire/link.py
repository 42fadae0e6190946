"""A front end's connection to one engine, and to the next one at the same address.

Always: a closed connection is noticed at once, and a new one made until cancelled. Nothing sent to a dead engine
reaches the next. Messages are handed over where they arrive, by a call and without a task between; large steps in
parts. An engine on another machine has another clock: times are translated here. What cannot be read from there closes
the connection, and no more.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

import msgspec
import zmq

from chairlift.config.version import VERSION
from chairlift.live.wire import messages
from chairlift.live.wire.curve import Curve
from chairlift.telemetry.metrics.figures import Figures

_FRESH_S = 2.5  # figures come each second while they change


class Seen:
    """What a front end was told of one engine for operators: its figures, and how fast it makes tokens."""

    def __init__(self) -> None:
        self.figures = Figures()
        self._at = 0.0  # when they came
        self._tokens_per_s = 0.0

    def take(self, figures: Figures, now: float) -> None:
        before, self.figures = self.figures, figures
        made = figures.generated_tokens - before.generated_tokens if figures.born == before.born else 0
        self._tokens_per_s = made / (now - self._at) if now > self._at else 0.0
        self._at = now

    def shown(self, now: float) -> dict[str, object]:
        """As the page and the admin routes have it."""
        figures = self.figures
        is_fresh = now - self._at < _FRESH_S
        return {
            "kv_held": round(figures.held_ratio, 4),
            "cached_share": round(figures.cached_tokens / figures.prompt_tokens, 4) if figures.prompt_tokens else None,
            "prompt_tokens": figures.prompt_tokens,
            "generated_tokens": figures.generated_tokens,
            "tokens_per_s": round(self._tokens_per_s, 1) if is_fresh else 0.0,
            "moved_in": figures.moved_in,
        }


_RECONNECT_MS = 20
_PAUSE_S = 0.2  # between two attempts to reach another machine
_WRONG_S = 10.0  # and one that is none, or that sent what cannot be read
_LARGE = 8_192  # bytes of a step, which are handed over at once
_log = logging.getLogger(__name__)


class Link:
    def __init__(
        self,
        address: str,
        name: str,
        hear: Callable[[messages.FromEngine], None],
        lose: Callable[[], None],
        curve: Curve | None = None,
        number: int = 0,
    ) -> None:
        """`hear` gets messages as they come, but for figures, which are kept here. `lose`: the engine that was ready is
        gone. `curve`: for an engine on another machine. `number`: under which operators see it."""
        self.info: messages.EngineInfo | None = None  # of the last engine
        self.num_running = 0
        self.num_waiting = 0
        self.queued = 0  # work, in tokens
        self.seen = Seen()
        self.number = number
        self.is_ready = False
        self.address = address
        self._curve = curve
        self._ahead_s = 0.0  # of the engine's clock
        self._pause_s = _PAUSE_S
        self._name = name.encode()
        self._take, self._lose = hear, lose
        self._socket: zmq.Socket[bytes] | None = None
        self._over: asyncio.Future[None]  # done when the engine is gone
        self._will_read = False
        self._parts: deque[messages.Step] = deque()  # of a large step, to be handed over
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(messages.FromEngine)

    @property
    def is_remote(self) -> bool:
        return self._curve is not None

    def shown(self, is_drained: bool) -> dict[str, object]:
        """As operators see it."""
        return {
            "address": self.address if self.is_remote else "here",
            "state": "gone" if not self.is_ready else "draining" if is_drained else "ready",
            "running": self.num_running,
            "waiting": self.num_waiting,
            **self.seen.shown(time.monotonic()),
        }

    async def run(self) -> None:
        """Stays connected until cancelled."""
        while True:
            await self._connect()
            if self._curve is not None:
                await asyncio.sleep(self._pause_s)
                self._pause_s = _PAUSE_S

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
        if self._curve is None:
            socket.connect(self.address)
        else:
            try:
                self._curve.connect(socket, self.address)
            except zmq.ZMQError as error:  # costs this link alone
                _log.warning("%s cannot be connected to: %s", self.address, error.strerror)
                socket.disable_monitor()
                monitor.close()
                socket.close()
                self._pause_s = _WRONG_S
                return
        self._socket = socket
        loop.add_reader(socket, self._read)
        loop.add_reader(monitor, self._watch, monitor)
        try:
            self.send(messages.Hello())
            self._watch(monitor)
            await self._over
        finally:
            loop.remove_reader(socket)
            loop.remove_reader(monitor)
            self._socket = None
            was_ready, self.is_ready = self.is_ready, False
            self.num_running = self.num_waiting = self.queued = 0
            socket.disable_monitor()
            monitor.close()
            socket.close()
        while self._parts:
            self._take(self._parts.popleft())
        if was_ready:
            self._lose()

    def _read(self) -> None:
        """Takes one message, or a part of a large one; other callbacks of the loop run before the next."""
        self._will_read = False
        if self._socket is None or not (self._parts or _has_message(self._socket)):
            return
        try:
            if self._parts:
                self._take(self._parts.popleft())
            else:
                said = self._socket.recv(zmq.NOBLOCK)
                self._hear(self._decoder.decode(said), len(said))
        except Exception as error:
            if self._over.done():
                return
            if self._curve is not None and isinstance(error, msgspec.MsgspecError):
                _log.warning("%s sent what cannot be read (%s); is it of another version?", self.address, error)
                self._pause_s = _WRONG_S
                self._over.set_result(None)
                return
            self._over.set_exception(error)
        self._read_soon()

    def _read_soon(self) -> None:
        # The socket's file becomes readable only after the socket was found empty, and sending may clear the sign: so
        # look again after each use, until there is nothing.
        if not self._will_read:
            self._will_read = True
            asyncio.get_running_loop().call_soon(self._read)

    def _hear(self, message: messages.FromEngine, num_bytes: int) -> None:
        if isinstance(message, messages.Told):
            self.seen.take(message.figures, time.monotonic())
            return
        if isinstance(message, messages.Step):
            self.num_running, self.num_waiting = message.num_running, message.num_waiting
            self.queued = message.queued
            if self._ahead_s:
                message = _on_our_clock(message, self._ahead_s)
            if num_bytes > _LARGE and len(message.outputs) > 1:
                self._parts += _parts(message, num_bytes)
                return
        elif isinstance(message, messages.Ready):
            if message.info.version != VERSION:
                raise msgspec.ValidationError(f"it runs chairlift {message.info.version}, this server {VERSION}")
            if self._curve is not None:
                self._ahead_s = message.clock - time.monotonic()
            self.info, self.is_ready = message.info, True
        self._take(message)

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        if _has_message(monitor) and not self._over.done():
            self._over.set_result(None)

    def send_if_ready(self, message: messages.ToEngine) -> bool:
        if self.is_ready:
            self.send(message)
        return self.is_ready

    def send(self, message: messages.ToEngine) -> None:
        assert self._socket is not None
        if self._ahead_s and isinstance(message, messages.Submit) and message.expires is not None:
            message = msgspec.structs.replace(message, expires=message.expires + self._ahead_s)
        self._socket.send(self._encoder.encode(message), zmq.NOBLOCK)
        self._read_soon()


def _parts(step: messages.Step, num_bytes: int) -> Iterator[messages.Step]:
    outputs = step.outputs
    count = max(1, len(outputs) * _LARGE // num_bytes)
    for first in range(0, len(outputs), count):
        yield msgspec.structs.replace(step, outputs=outputs[first : first + count])


def _on_our_clock(step: messages.Step, ahead_s: float) -> messages.Step:
    """With the times of traced requests on this machine's clock."""
    if not any(output.marks for output in step.outputs):
        return step
    outputs = [
        msgspec.structs.replace(each, marks=[(phase, at - ahead_s) for phase, at in each.marks]) if each.marks else each
        for each in step.outputs
    ]
    return msgspec.structs.replace(step, outputs=outputs)


def _has_message(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)
