"""Steps of a shared switchboard for tasks of asyncio, made by a thread of its own: no task waits for a step.

Always: a step wakes each event loop once, whatever the number of its tasks. The thread sleeps while no request is open,
and ends with `close`. What a step raises, every task that waits gets, and every later one.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from chairlift.core.errors import EngineUnavailable
from chairlift.live.adapters.registry import Adapter
from chairlift.live.wire.messages import Output
from chairlift.live.wire.shared_switchboard import Request, SharedSwitchboard, Subscription


class TaskSubscription(Subscription):
    """The outputs of one request, for a task."""

    __slots__ = ("has_news", "loop")

    def __init__(self) -> None:
        super().__init__([])
        self.loop = asyncio.get_running_loop()
        self.has_news = asyncio.Event()


class SteppingThread:
    def __init__(self, shared: SharedSwitchboard) -> None:
        self._shared = shared
        self._asked = threading.Event()
        self._is_closed = False
        self._failure: Exception | None = None
        self._waiting: set[TaskSubscription] = set()
        shared.on_outputs = _wake
        self._thread = threading.Thread(target=self._run, name="steps", daemon=True)
        self._thread.start()

    def ask(self, request: Request, adapter: Adapter | None) -> TaskSubscription:
        """In a task. What it returns has to be dropped."""
        self._check()
        subscription = TaskSubscription()
        self._shared.ask(subscription, request, adapter)
        self._waiting.add(subscription)
        self._asked.set()
        return subscription

    async def outputs(self, subscription: TaskSubscription) -> AsyncGenerator[list[Output], None]:
        """All that came since the last, at least one."""
        kept = subscription.outputs
        while True:
            while not kept:
                subscription.has_news.clear()
                self._check()
                if not kept:
                    await subscription.has_news.wait()
            yield [kept.popleft() for _ in range(len(kept))]

    def drop(self, subscription: TaskSubscription) -> None:
        self._waiting.discard(subscription)
        self._shared.drop(subscription)
        self._asked.set()

    def close(self) -> None:
        """Tasks that wait get an error. Waits for the end of a step under way."""
        self._is_closed = True
        self._shared.close()
        self._asked.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _check(self) -> None:
        if self._failure is not None:
            raise EngineUnavailable(f"the engine failed: {self._failure}") from self._failure

    def _run(self) -> None:
        while not self._is_closed:
            self._asked.wait()
            self._asked.clear()
            try:
                while self._shared.step():
                    pass
            except Exception as error:
                self._failure = error
                _wake(list(self._waiting))
                return


def _wake(subscriptions: Sequence[Subscription]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[TaskSubscription]] = {}
    for each in subscriptions:
        if isinstance(each, TaskSubscription):
            loops.setdefault(each.loop, []).append(each)
    for loop, told in loops.items():
        with suppress(RuntimeError):  # the loop was closed: its tasks are gone
            loop.call_soon_threadsafe(_tell, told)


def _tell(subscriptions: list[TaskSubscription]) -> None:
    for each in subscriptions:
        each.has_news.set()
