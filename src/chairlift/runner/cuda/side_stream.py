"""A second stream of a step that is being captured: what does not need each other is computed side by side.

Always: a step that is not captured stays on one stream, as each fork takes time of the host.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class SideStream:
    _stream: torch.cuda.Stream | None = None

    def fork(self) -> torch.cuda.Event | None:
        """The point behind which `beside` begins; None: there is but one stream."""
        if not torch.cuda.is_available() or not torch.cuda.is_current_stream_capturing():
            return None
        event = torch.cuda.Event()
        event.record()
        return event

    @contextmanager
    def beside(self, fork: torch.cuda.Event | None) -> Iterator[None]:
        """What is launched here runs beside what was launched since the fork, and both before what follows."""
        if fork is None:
            yield
            return
        self._stream = self._stream or torch.cuda.Stream()
        stream = torch.cuda.current_stream()
        self._stream.wait_event(fork)
        with torch.cuda.stream(self._stream):
            yield
        stream.wait_stream(self._stream)
