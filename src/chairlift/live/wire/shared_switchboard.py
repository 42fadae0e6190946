"""A switchboard that several threads of a process share.

Always: one thread at a time has the turn. In it, the thread runs the queued calls of all threads, makes one step, and
keeps the outputs for their subscriptions. A thread without outputs waits for the end of a turn, or takes the next one:
none polls, and none has to come back for others to go on. Requests of all threads share steps. `close` ends what is
under way with an error, and lets go of the engine. Knows nothing of texts.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TypeVar

from chairlift.core.attributes import Attributes
from chairlift.core.errors import EngineUnavailable
from chairlift.core.params import SamplingParams
from chairlift.live.adapters.registry import Adapter
from chairlift.live.processes.interrupts import deferred_interrupts
from chairlift.live.wire.messages import Abort, Output, Submit, with_adapter
from chairlift.live.wire.switchboard import Switchboard

T = TypeVar("T")
Request = tuple[list[int], SamplingParams, int]  # prompt, parameters, and the most tokens it may make
RequestWith = tuple[list[int], SamplingParams, int, Attributes]
_HERE = b""  # the only front end there is
_CLOSED = "this LLM is closed; make another"


class Subscription:
    """The outputs of requests submitted together."""

    __slots__ = ("keys", "outputs")

    def __init__(self, keys: list[int]) -> None:
        self.keys = keys
        self.outputs: deque[Output] = deque()  # not read yet


class SharedSwitchboard:
    def __init__(self, switchboard: Switchboard) -> None:
        self._open: Switchboard | None = switchboard  # None: closed
        self.on_outputs: Callable[[list[Subscription]], None] | None = None  # called in a turn, once for each step
        self._keys = count(1)
        self._subscriptions: dict[int, Subscription] = {}  # by key
        self._calls: deque[Callable[[], None]] = deque()  # to run between two steps, in order
        self._is_taken = False  # the turn
        # Reentrant: the collector may close a forgotten stream wherever this thread stands.
        self._turn_ended = threading.Condition(threading.RLock())

    @property
    def is_closed(self) -> bool:
        return self._open is None

    @property
    def switchboard(self) -> Switchboard:
        if self._open is None:
            raise EngineUnavailable(_CLOSED)
        return self._open

    @contextmanager
    def asking(
        self, requests: Sequence[Request] | Sequence[RequestWith], adapters: Sequence[Adapter | None] | None = None
    ) -> Iterator[Subscription]:
        """Submits requests; the end of the context drops them. `adapters`: of each; None: none has one."""
        subscription = Subscription([])
        self.switchboard  # noqa: B018  (raises where it is closed)
        try:
            self.do(partial(self._submit, subscription, self._messages(subscription, requests, adapters)))
            yield subscription
        finally:
            self.drop(subscription)

    def ask(self, subscription: Subscription, request: Request, adapter: Adapter | None = None) -> None:
        """Submits a request without waiting for the turn. Its outputs come when some thread makes steps."""
        self.switchboard  # noqa: B018  (raises where it is closed)
        self._leave(partial(self._submit, subscription, self._messages(subscription, [request], [adapter])))

    def drop(self, subscription: Subscription) -> None:
        """Ends requests without an output, and without waiting for the turn."""
        self._leave(partial(self._drop, subscription))

    def outputs(self, subscription: Subscription) -> Iterator[Output]:
        """As they come; ends when the engine has nothing left to do."""
        kept = subscription.outputs
        while kept or (subscription.keys and self._step_for(subscription)):
            while kept:
                yield kept.popleft()

    def end_sample(self, key: int, sample: int) -> None:
        """Before the next step; outputs of the step in flight may still come."""
        self._leave(partial(self._abort, Abort(key, sample)))

    def step(self) -> bool:
        """Makes a step for all; False when there is nothing left to do."""
        self._takes_turn(lambda: False)
        return self._make_step()

    def close(self) -> None:
        """Waits for the end of a step under way."""
        if self._open is not None:
            self.do(self._close)

    def do(self, call: Callable[[], T]) -> T:
        """The result of `call`, run while no other thread has the turn."""
        done = self._ask(call)
        with deferred_interrupts():
            if self._takes_turn(done.done):
                self._end_turn()
        return done.result()

    def _leave(self, call: Callable[[], None]) -> None:
        """Runs `call` now or, if another thread has the turn, leaves it to that thread without waiting."""
        self._ask(call)
        with deferred_interrupts():
            with self._turn_ended:
                if self._is_taken:
                    return
                self._is_taken = True
            self._end_turn()

    def _ask(self, call: Callable[[], T]) -> "Future[T]":
        done: Future[T] = Future()
        self._calls.append(partial(_carry_out, call, done))
        return done

    def _step_for(self, subscription: Subscription) -> bool:
        """Waits for another thread's step, or makes one; False when no output will come."""
        with deferred_interrupts():
            if not self._takes_turn(lambda: bool(subscription.outputs)):
                return True
            return self._make_step() or bool(subscription.outputs)

    def _make_step(self) -> bool:
        """In a turn, which it ends; False when there is nothing left to do."""
        try:
            self._do_calls()
            board = self._open
            if board is None:
                return False
            self._keep(board.step().get(_HERE, ()))
            return board.has_work or (board.reading is not None and board.reading.wait())
        finally:
            self._end_turn()

    def _takes_turn(self, has_come: Callable[[], bool]) -> bool:
        """Waits for the turn; False if `has_come` first."""
        with self._turn_ended:
            self._turn_ended.wait_for(lambda: has_come() or not self._is_taken)
            if has_come():
                return False
            self._is_taken = True
            return True

    def _end_turn(self) -> None:
        try:
            self._do_calls()
        finally:
            with self._turn_ended:
                self._is_taken = False
                self._turn_ended.notify_all()

    def _do_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def _keep(self, outputs: Sequence[Output]) -> None:
        told: dict[int, Subscription] = {}
        for output in outputs:
            subscription = self._subscriptions.get(output.key)
            if subscription is not None:  # else it was dropped
                subscription.outputs.append(output)
                told[id(subscription)] = subscription
        if told and self.on_outputs is not None:
            self.on_outputs(list(told.values()))

    def _messages(
        self,
        subscription: Subscription,
        requests: Sequence[Request] | Sequence[RequestWith],
        adapters: Sequence[Adapter | None] | None,
    ) -> list[Submit]:
        messages = [Submit(next(self._keys), *request) for request in requests]
        subscription.keys += [message.key for message in messages]
        if adapters is None:
            return messages
        pairs = zip(messages, adapters, strict=True)
        return [message if adapter is None else with_adapter(message, adapter) for message, adapter in pairs]

    def _submit(self, subscription: Subscription, messages: list[Submit]) -> None:
        for message in messages:
            self._subscriptions[message.key] = subscription
            if self._open is not None:
                self._open.submit(_HERE, message)
        if self._open is None:  # since it was asked
            self._keep([_refused(message.key) for message in messages])

    def _abort(self, message: Abort) -> None:
        if self._open is not None:
            self._open.abort(_HERE, message)

    def _drop(self, subscription: Subscription) -> None:
        for key in subscription.keys:
            self._subscriptions.pop(key, None)
            self._abort(Abort(key))

    def _close(self) -> None:
        self._open = None
        self._keep([_refused(key) for key in self._subscriptions])


def _refused(key: int) -> Output:
    return Output(key, 0, None, "error", error=_CLOSED)


def _carry_out(call: Callable[[], T], done: "Future[T]") -> None:
    """An exception goes to the thread that asked, not to the one that has the turn."""
    try:
        done.set_result(call())
    except BaseException as error:
        done.set_exception(error)
        if not isinstance(error, Exception):  # an interrupt
            raise
