"""Whether a request may end engines: how many died while busy with it, without a token of it since.

One such death says little: every request of the step is a suspect. After two, or one crash of an engine that was busy
with nothing else, a request runs by itself until it has made a token (`quarantine.py`). A request that crashed the
engine twice by itself is not tried again. A kill says less than a crash: an operator may have sent it, or the kernel
for want of memory that the request took. So it takes more kills.
"""

from collections.abc import Mapping

_MAX_TOGETHER = 2
_MAX_CRASHES = 2
_MAX_ALONE = 5  # killed or crashed


class Suspicion:
    def __init__(self) -> None:
        self.num_alone = 0  # deaths of engines that were busy with nothing else
        self._num_crashes = 0  # those of them without a kill from outside
        self._num_deaths = 0
        self._made: Mapping[int, int] = {}  # tokens of its open samples at the last death

    def look(self, made: Mapping[int, int]) -> None:
        """An engine died; the request has `made` tokens by open sample. A change since the death before clears it."""
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
