"""Ctrl-C that waits for the end of a section.

Python raises `KeyboardInterrupt` between any two instructions of the main thread; within a step it would leave requests
half planned. A second Ctrl-C does not wait.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Inside, the main thread only notes an interrupt; its handler is called at the end."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    noted: list[FrameType | None] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(frame)
        if len(noted) > 1:
            handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if len(noted) == 1:
            handler(signal.SIGINT, noted[0])
