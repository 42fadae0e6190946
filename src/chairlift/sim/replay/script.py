"""The lines of a trace as a script: the scheduler's inputs and events, apart, each in order.

Lines are read on demand; only those between the next input and the next event are held.
"""

from collections import deque

from chairlift.core.events import Event
from chairlift.telemetry.lines import Input
from chairlift.telemetry.trace import Trace


class EndOfTrace(Exception):
    """The trace ends here; the run that wrote it may have been cut off."""


class TraceScript:
    def __init__(self, trace: Trace) -> None:
        self._lines = trace.numbered()
        self._inputs: deque[tuple[int, Input]] = deque()
        self._events: deque[tuple[int, Event]] = deque()
        self.number = 1  # of the line that was taken last

    @property
    def next_number(self) -> int:
        """Of the next input, if it was read already."""
        return self._inputs[0][0] if self._inputs else self.number

    def peek(self, ahead: int = 0) -> Input | None:
        """The next input, or one after it; None at the end."""
        while len(self._inputs) <= ahead:
            if not self._read():
                return None
        return self._inputs[ahead][1]

    def take(self) -> None:
        """Removes the input that was peeked at."""
        self.number, _ = self._inputs.popleft()

    def take_event(self) -> Event:
        while not self._events:
            if not self._read():
                raise EndOfTrace
        self.number, event = self._events.popleft()
        return event

    def _read(self) -> bool:
        number, line = next(self._lines, (0, None))
        if isinstance(line, Input):
            self._inputs.append((number, line))
        elif line is not None:
            self._events.append((number, line))
        return line is not None
