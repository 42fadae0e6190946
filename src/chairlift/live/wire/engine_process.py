"""The engine's side of the wire: reads messages, steps, and sends each front end its outputs, once per step.

Always: every front end knows how many requests run and wait, also when none is its own. Sleeps in the socket when idle,
and while a step runs until the next is to be planned.
A front end's death is noticed at the next write to it, or when another takes its name; its requests are ended.
A message that cannot be read is dropped. A request whose abort has come as well is never begun.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec
import zmq

from chairlift.core.routing.queued import QueuedWork
from chairlift.live.moving.ticket import Ticket
from chairlift.live.recovery.quarantine import Quarantine
from chairlift.live.recovery.step_note import InterruptedWork, StepNote
from chairlift.live.wire import messages
from chairlift.live.wire.curve import Curve
from chairlift.live.wire.feeds import FiguresFeed, WatchFeed
from chairlift.live.wire.messages import EngineInfo, Output, Submit
from chairlift.live.wire.recipients import FrontEnd
from chairlift.live.wire.switchboard import Switchboard
from chairlift.telemetry.metrics.engine import EngineMetrics
from chairlift.telemetry.watch.view import View

PREPARE_AFTER_S = 0.1  # without requests: a part cannot be interrupted, and traffic has short gaps
TIDY_AFTER_S = 1.0
TAKE_S = 0.01  # for which a burst of messages may hold up a step
_MAX_INBOX, _MAX_ABORT_BYTES = 65_536, 64
_log = logging.getLogger(__name__)


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
        queued: QueuedWork | None = None,
        public: tuple[str, Curve] | None = None,
        counting: EngineMetrics | None = None,
    ) -> None:
        """`prepare` does a small part of work ahead while idle, `PREPARE_AFTER_S` after the last request and before the
        first; False when nothing is left. `note` has the requests that the engine before this one died busy with.
        `tidy` is called after `TIDY_AFTER_S` without requests. An idle engine beats in the note at least every
        `max_sleep_s`. `queued`: the load of one of several replicas. `public`: an address for front ends on other
        machines. `counting`: figures, told where there are several."""
        self._switchboard = Quarantine(switchboard, note)
        self._prepare, self._is_prepared = prepare, False
        self._tidy, self._is_tidy = tidy, False
        self._worked = -math.inf  # when it last had work
        self._note = note
        self._max_sleep_ms = None if max_sleep_s is None else round(1000 * max_sleep_s)
        self._interrupted = InterruptedWork({}, was_killed=False) if note is None else note.take()
        self._suspects = dict(self._interrupted.keys)  # not told yet, by front end
        self._info = info
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(messages.ToEngine)
        self._aborts = msgspec.msgpack.Decoder(messages.Abort)
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        for option in (zmq.ROUTER_MANDATORY, zmq.ROUTER_HANDOVER):
            self._socket.setsockopt(option, 1)
        for option in (zmq.SNDHWM, zmq.RCVHWM, zmq.LINGER):
            self._socket.setsockopt(option, 0)
        self._socket.bind(address)
        if public is not None:
            public[1].listen(self._socket, public[0], "--address HOST:PORT")
        self._num_unread = 0  # messages
        self._inbox: deque[tuple[FrontEnd, bytes]] = deque()  # messages that have come and were not heard yet
        self._aborted: set[tuple[FrontEnd, int]] = set()  # keys of requests whose aborts are among them
        self._poller: zmq.Poller | None = None
        wakers = [each.woken for each in (switchboard.moves, switchboard.reading) if each is not None]
        if wakers:
            self._poller = zmq.Poller()
            for waker in (self._socket, *wakers):
                self._poller.register(waker, zmq.POLLIN)
        self._unloading: dict[int, list[FrontEnd]] = {}  # adapters that are to be forgotten, and by whose word
        self._watch_feed = WatchFeed(view, self._send)
        self._told: dict[FrontEnd, tuple[int, int, int]] = {}  # running, waiting and queued, as last sent to each
        self._taken: dict[FrontEnd, int] = {}  # requests of each front end
        self._queued = queued
        self._counting = counting
        self._figures: FiguresFeed | None = None
        if counting is not None and queued is not None:
            self._figures = FiguresFeed(counting, time.monotonic, self._send)
        self._news = switchboard.engine.scheduler.pool.news
        self._is_draining = False

    def run(self) -> None:
        """Never returns; a signal ends the process."""
        while True:
            self._beat()
            self._receive()
            self._await_arrivals()
            self._step()
            self._move()
            self._unload()
            self._tell_prefixes()
            self._watch_feed.show()
            if self._figures is not None:
                self._figures.show(self._told)

    def _step(self) -> None:
        has_work = self._switchboard.has_work
        self._tell(self._switchboard.step())
        if has_work:
            self._worked = self._switchboard.engine.clock.now()
            self._is_tidy = self._is_prepared = False

    def _move(self) -> None:
        """Goes on with moves of requests; after the outputs, so that all that they made was sent."""
        moves = self._switchboard.moves
        for answer in moves.turn(self._switchboard.take_exported()) if moves is not None else ():
            self._let_go(*answer)

    def _unload(self) -> None:
        """Forgets adapters whose last request has ended."""
        for adapter in list(self._unloading):
            if self._switchboard.forget_adapter(adapter):
                for front_end in self._unloading.pop(adapter):
                    if front_end in self._told:
                        self._send(front_end, messages.Unloaded(adapter))

    def _let_go(self, front_end: FrontEnd, key: int, ticket: Ticket | None) -> None:
        self._switchboard.abort(front_end, messages.Abort(key, has_moved=True))
        if front_end in self._told:
            self._send(front_end, messages.Moved(key, ticket))

    def _tell(self, news: dict[FrontEnd, list[Output]]) -> None:
        numbers = self._numbers()
        for front_end, told in list(self._told.items()):
            if front_end in news or told != numbers:
                self._told[front_end] = numbers
                self._send(front_end, messages.Step(news.get(front_end, []), *numbers, self._taken[front_end]))
        if self._numbers() != numbers:  # a front end was gone
            self._tell({})

    def _numbers(self) -> tuple[int, int, int]:
        scheduler = self._switchboard.engine.scheduler
        num_waiting = len(scheduler.waiting) + len(scheduler.preempted)
        num_waiting += len(scheduler.arriving) + len(scheduler.leaving)
        if self._switchboard.reading is not None:
            num_waiting += self._switchboard.reading.num_held
        queued = 0 if self._queued is None else self._queued.amount
        return len(scheduler.running), num_waiting + self._switchboard.num_held, queued

    def _tell_prefixes(self) -> None:
        """What has changed in the prefix index, to all."""
        changes = None if self._news is None else self._news.take()
        if changes is not None:
            for front_end in list(self._told):
                self._send(front_end, messages.Prefixes(False, *changes))

    def _tell_whole(self, front_end: FrontEnd) -> None:
        if self._news is not None:
            self._tell_prefixes()
            self._send(front_end, messages.Prefixes(True, *self._news.whole()))

    def _work_ahead(self) -> None:
        """Prepares while idle, until nothing is left, a message comes, or a request need not wait any longer."""
        while self._is_quiet_for(PREPARE_AFTER_S) and not self._is_prepared and not self._is_woken():
            self._is_prepared = not self._prepare()
            self._beat()

    def _is_quiet_for(self, seconds: float) -> bool:
        return not self._switchboard.has_work and self._switchboard.engine.clock.now() - self._worked >= seconds

    def _receive(self) -> None:
        """Takes messages; waits for one only when there is no work, now or ahead."""
        self._work_ahead()
        self._is_woken(self._rest())
        self._take(0)

    def _await_arrivals(self) -> None:
        """Takes messages until the next step is to be planned."""
        self._switchboard.begin()
        engine = self._switchboard.engine
        while (wait_s := engine.plan_at - engine.clock.now()) > 0.0:
            if self._note is not None:
                self._note.rest()
            wait_ms = int(1000 * wait_s)
            if not wait_ms:  # sockets wait for whole milliseconds
                time.sleep(wait_s)
            self._take(wait_ms)

    def _take(self, timeout_ms: int) -> None:
        """All messages; once there is something to compute, those that come until the next step is to be planned, or
        for `TAKE_S` if that is longer. Waits so long for the first. Pieces and adapters are the next step's to take."""
        engine, until = self._switchboard.engine, math.inf
        while self._collect(timeout_ms):
            timeout_ms = 0
            self._hear(*self._inbox.popleft())
            if self._switchboard.has_work:
                now = engine.clock.now()
                until = min(until, now + TAKE_S)
                if now >= until and now >= engine.plan_at:
                    return

    def _collect(self, timeout_ms: int) -> bool:
        """Moves what has come to the inbox; whether there is something. Aborts are short, and known ahead."""
        while len(self._inbox) < _MAX_INBOX and self._socket.poll(0 if self._inbox else timeout_ms):
            front_end, *parts = self._socket.recv_multipart()
            said = parts[0] if len(parts) == 1 else b""
            self._inbox.append((front_end, said))
            if len(said) <= _MAX_ABORT_BYTES:
                with suppress(msgspec.MsgspecError):
                    abort = self._aborts.decode(said)
                    if abort.sample is None:
                        self._aborted.add((front_end, abort.key))
        return bool(self._inbox)

    def _hear(self, front_end: FrontEnd, said: bytes) -> None:
        try:
            message = self._decoder.decode(said)
        except msgspec.MsgspecError as error:
            self._num_unread += 1
            _log.warning(
                "a message of %s was dropped, as it cannot be read (%s; %d so far)",
                front_end.decode(errors="replace"), error, self._num_unread,
            )  # fmt: skip
            return
        if isinstance(message, Submit):
            self._taken[front_end] = self._taken.get(front_end, 0) + 1
            if self._counting is not None and message.outputs is not None:
                self._counting.moved_in()
            if (front_end, message.key) not in self._aborted:
                self._switchboard.submit(front_end, message)
        elif isinstance(message, messages.Abort):
            self._aborted.discard((front_end, message.key))
            self._switchboard.abort(front_end, message)
        elif isinstance(message, messages.Move):
            if not self._switchboard.move(front_end, message):
                self._let_go(front_end, message.key, None)
        elif isinstance(message, messages.Recall):
            if self._switchboard.is_new(front_end, message.key):
                self._let_go(front_end, message.key, None)
            else:
                self._send(front_end, messages.Kept(message.key))
        elif isinstance(message, messages.Unload):
            self._unloading.setdefault(message.adapter, []).append(front_end)
        elif isinstance(message, messages.Proven):
            if self._note is not None:
                self._note.count()
        elif isinstance(message, messages.Watch | messages.Explain):
            self._watch_feed.hear(front_end, message)
        elif isinstance(message, messages.Hello):
            self._drop(front_end)  # the front end of this name before is gone
            self._welcome(front_end)
        elif isinstance(message, messages.AskPrefixes):
            self._tell_whole(front_end)
        elif isinstance(message, messages.Elsewhere):
            self._switchboard.engine.served_elsewhere(message.services)
        elif isinstance(message, messages.Drain):
            self._is_draining = message.is_on
            if self._counting is not None:
                self._counting.drained(message.is_on)
            for each in list(self._told):
                self._send(each, messages.Draining(message.is_on))
            if self._figures is not None:  # the engine may end soon
                self._figures.show(self._told, is_urgent=True)

    def _is_woken(self, timeout_ms: int | None = 0) -> bool:
        """By a message, a piece that was copied or an adapter that was read; waits so long for one, for ever if
        None."""
        return bool(self._inbox or (self._poller or self._socket).poll(timeout_ms))

    def _welcome(self, front_end: FrontEnd) -> None:
        self._told[front_end], self._taken[front_end] = (0, 0, 0), 0
        left = self._interrupted
        # Once: a front end that was cut off and comes back is not to blame them for the same death again.
        suspects = self._suspects.pop(front_end, [])
        ready = messages.Ready(
            self._info, suspects, left.is_alone, left.was_killed, self._is_draining, time.monotonic()
        )
        self._send(front_end, ready)
        self._tell_whole(front_end)
        if self._figures is not None:
            self._figures.welcome(front_end)

    def _rest(self) -> int | None:
        """How long to wait for messages; None: for ever."""
        if self._switchboard.has_work:
            return 0
        if self._note is not None:
            self._note.rest()
        if not self._is_tidy and self._is_quiet_for(TIDY_AFTER_S):
            self._tidy()
            self._is_tidy = True
        waits_ms = (
            self._watch_feed.wait_ms,
            None if self._is_prepared else round(1000 * PREPARE_AFTER_S),
            None if self._is_tidy else round(1000 * TIDY_AFTER_S),
            self._max_sleep_ms,
            None if self._figures is None else self._figures.wait_ms,
        )
        return min((wait_ms for wait_ms in waits_ms if wait_ms is not None), default=None)

    def _beat(self) -> None:
        if self._note is not None:
            self._note.beat()

    def _send(self, front_end: FrontEnd, message: messages.FromEngine) -> None:
        try:
            self._socket.send_multipart([front_end, self._encoder.encode(message)])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._drop(front_end)

    def _drop(self, front_end: FrontEnd) -> None:
        self._switchboard.drop(front_end)
        self._told.pop(front_end, None)
        self._taken.pop(front_end, None)
        self._watch_feed.drop(front_end)
