"""Whether a request may be what ends the engine: how many died while busy with it, without a token of it since.

One such death says little, for everybody in the step is under suspicion. After two, or one crash of an engine that was
busy with nobody else, a request runs by itself until it has made a token (`quarantine.py`). Who crashed the engine
twice by itself is not tried again. An engine that was killed says less about the request than one that crashed:
somebody may have done it, but the kernel kills for want of memory too, and that may be the request's. So it takes more
of them.
"""

from collections.abc import Mapping

_MAX_TOGETHER = 2
_MAX_CRASHES = 2
_MAX_ALONE = 5  # killed or crashed


class Suspicion:
    def __init__(self) -> None:
        self.num_alone = 0  # deaths of engines that were busy with nothing else
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
        """The engine that died was busy with the request."""
        self._num_deaths += 1
        self.num_alone += is_alone
        self._num_crashes += is_alone and not was_killed

    @property
    def is_strong(self) -> bool:
        return self._num_deaths >= _MAX_TOGETHER or self._num_crashes > 0

    @property
    def is_proven(self) -> bool:
        return self._num_crashes >= _MAX_CRASHES or self.num_alone >= _MAX_ALONE
