"""The engine's end of the wire: reads what front ends send, steps, and sends each its outputs, once per step.

Always: every front end knows how many requests run and wait, also when none of them is its own. Sleeps in the socket
when there is nothing to do. A front end that is gone is noticed when it is next written to, or when another takes its
name, and its requests are ended.
"""

from collections.abc import Callable

import msgspec
import zmq

from chairlift.live.recovery.quarantine import Quarantine
from chairlift.live.recovery.step_note import InterruptedWork, StepNote
from chairlift.live.wire.messages import (
    Abort,
    EngineInfo,
    Explain,
    FromEngine,
    Hello,
    Output,
    Proven,
    Ready,
    Step,
    Submit,
    ToEngine,
    Watch,
)
from chairlift.live.wire.switchboard import FrontEnd, Switchboard
from chairlift.live.wire.watch_feed import WatchFeed
from chairlift.telemetry.watch.view import View

TIDY_AFTER_S = 1.0


class EngineProcess:
    def __init__(
        self,
        address: str,
        switchboard: Switchboard,
        view: View,
        info: EngineInfo,
        prepare: Callable[[], bool] = lambda: False,
        note: StepNote | None = None,
        tidy: Callable[[], None] = lambda: None,
        max_sleep_s: float | None = None,
    ) -> None:
        """`prepare` does a small part of what can be done ahead while there is no work; False when nothing is left.
        `note` has the requests that the engine before this one was busy with when it died. `tidy` is called once
        nobody has wanted anything for a while. At most `max_sleep_s` go by without a sign of life in the note while
        there is nothing to do."""
        self._switchboard = Quarantine(switchboard, note)
        self._prepare = prepare
        self._tidy, self._is_tidy = tidy, False
        self._worked = 0.0  # when there was last something to do
        self._note = note
        self._max_sleep_ms = None if max_sleep_s is None else round(1000 * max_sleep_s)
        self._interrupted = InterruptedWork({}, was_killed=False) if note is None else note.take()
        self._info = info
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ToEngine)
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(address)
        self._watch_feed = WatchFeed(view, self._send)
        self._told: dict[FrontEnd, tuple[int, int]] = {}  # running and waiting, as each front end last heard

    def run(self) -> None:
        """Never returns; a signal ends the process."""
        while True:
            self._beat()
            self._receive()
            self._step()
            self._watch_feed.show()

    def _step(self) -> None:
        has_work = self._switchboard.has_work
        self._tell(self._switchboard.step())
        if has_work:
            self._worked, self._is_tidy = self._switchboard.engine.clock.now(), False

    def _tell(self, news: dict[FrontEnd, list[Output]]) -> None:
        numbers = self._numbers()
        for front_end, told in list(self._told.items()):
            if front_end in news or told != numbers:
                self._told[front_end] = numbers
                self._send(front_end, Step(news.get(front_end, []), *numbers))
        if self._numbers() != numbers:  # one of them was gone
            self._tell({})

    def _numbers(self) -> tuple[int, int]:
        scheduler = self._switchboard.engine.scheduler
        num_waiting = len(scheduler.waiting) + len(scheduler.preempted)
        return len(scheduler.running), num_waiting + self._switchboard.num_held

    def _work_ahead(self) -> None:
        """While nobody wants anything and something is left to prepare."""
        while not self._switchboard.has_work and not self._socket.poll(0) and self._prepare():
            self._beat()

    def _receive(self) -> None:
        """Everything that has arrived; waits for something only when there is no work, nor any to do ahead."""
        self._work_ahead()
        timeout_ms = self._rest()
        while self._socket.poll(timeout_ms):
            front_end, data = self._socket.recv_multipart()
            message = self._decoder.decode(data)
            if isinstance(message, Submit):
                self._switchboard.submit(front_end, message)
            elif isinstance(message, Abort):
                self._switchboard.abort(front_end, message)
            elif isinstance(message, Proven):
                if self._note is not None:
                    self._note.count()
            elif isinstance(message, Watch | Explain):
                self._watch_feed.hear(front_end, message)
            elif isinstance(message, Hello):
                self._switchboard.drop(front_end)  # whoever had this name before is gone
                self._watch_feed.drop(front_end)
                self._told[front_end] = (0, 0)
                self._send(front_end, self._ready(front_end))
            timeout_ms = 0

    def _rest(self) -> int | None:
        """If there is nothing to do; how long then to wait for something. None: for ever."""
        if self._switchboard.has_work:
            return 0
        if self._note is not None:
            self._note.rest()
        if not self._is_tidy and self._switchboard.engine.clock.now() - self._worked >= TIDY_AFTER_S:
            self._tidy()
            self._is_tidy = True
        waits_ms = (self._watch_feed.wait_ms, None if self._is_tidy else round(1000 * TIDY_AFTER_S), self._max_sleep_ms)
        return min((wait_ms for wait_ms in waits_ms if wait_ms is not None), default=None)

    def _beat(self) -> None:
        if self._note is not None:
            self._note.beat()

    def _ready(self, front_end: FrontEnd) -> Ready:
        left = self._interrupted
        return Ready(self._info, left.keys.get(front_end, []), left.is_alone, left.was_killed)

    def _send(self, front_end: FrontEnd, message: FromEngine) -> None:
        try:
            self._socket.send_multipart([front_end, self._encoder.encode(message)])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._switchboard.drop(front_end)
            self._told.pop(front_end, None)
            self._watch_feed.drop(front_end)
