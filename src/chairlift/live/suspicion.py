"""Whether a request may be what ends the engine: in how many steps that ended one it was, without a token of it since.

One such death says little, for everybody in the step is under suspicion. After two, a request runs by itself until it
has made a token (`quarantine.py`). Who ended the engine twice by itself is not tried again. An engine that was killed
says less about the request than one that crashed: somebody may have done it, but the kernel kills for want of memory
too, and that may be the request's. So it takes more of them.
"""

from collections.abc import Mapping

_MAX_TOGETHER = 2
_MAX_CRASHES = 2
_MAX_ALONE = 5  # killed or crashed


class Suspicion:
    def __init__(self) -> None:
        self.num_alone = 0  # deaths with nothing else in the step
        self._num_crashes = 0  # those of them in which nobody had killed the engine
        self._num_deaths = 0
        self._made: Mapping[int, int] = {}  # tokens of its samples that had not ended, at the last of them

    def look(self, made: Mapping[int, int]) -> None:
        """An engine died; the request has so many tokens in samples that have not ended. More, or fewer samples, than
        at the death before clear it."""
        if made != self._made:
            self.num_alone = self._num_crashes = self._num_deaths = 0
        self._made = made

    def add(self, is_alone: bool, was_killed: bool) -> None:
        """The request was in a step of the engine that died."""
        self._num_deaths += 1
        self.num_alone += is_alone
        self._num_crashes += is_alone and not was_killed

    @property
    def is_strong(self) -> bool:
        return self._num_deaths >= _MAX_TOGETHER

    @property
    def is_proven(self) -> bool:
        return self._num_crashes >= _MAX_CRASHES or self.num_alone >= _MAX_ALONE
