"""Whether a request may be what ends the engine: in how many steps that ended one it was, without a token of it since.

One such death says little, for everybody in the step is under suspicion. After two, a request runs by itself until it
has made a token (`quarantine.py`). Who ended the engine twice by itself is not tried again.
"""

_MAX_TOGETHER = 2
_MAX_ALONE = 2


class Suspicion:
    def __init__(self) -> None:
        self.num_alone = 0  # deaths with nothing else in the step
        self._num_deaths = 0
        self._num_tokens = 0  # that the request had at the last of them

    def add(self, num_tokens: int, is_alone: bool) -> None:
        """The engine died with the request in a step; it has so many tokens."""
        if num_tokens != self._num_tokens:  # fewer: one of its samples has ended
            self.num_alone = self._num_deaths = 0
        self._num_tokens = num_tokens
        self._num_deaths += 1
        self.num_alone += is_alone

    @property
    def is_strong(self) -> bool:
        return self._num_deaths >= _MAX_TOGETHER

    @property
    def is_proven(self) -> bool:
        return self.num_alone >= _MAX_ALONE
