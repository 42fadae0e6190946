"""What the HTTP front end needs from the engine's client: submit a request, read its outputs, abort it.

The client in `live` has this shape, and so has the scripted one in the tests.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from chairlift.core.params import SamplingParams
from chairlift.live.messages import EngineInfo, Output


class Generation(Protocol):
    """The outputs of one request, all samples together; ends after every sample has finished.

    Raises `EngineUnavailable` when the engine dies. A request that the engine refuses or fails ends with an output
    whose `finish` is "error".
    """

    def __aiter__(self) -> AsyncIterator[Output]: ...

    async def __anext__(self) -> Output: ...

    def abort(self) -> None:
        """Free the request in the engine; may be called at any time and more than once."""
        ...

    def abort_sample(self, sample: int) -> None:
        """Free one sample, whose text is complete before its tokens are."""
        ...


class EngineClient(Protocol):
    @property
    def info(self) -> EngineInfo | None:
        """None while the engine is starting, restarting or gone."""
        ...

    @property
    def num_running(self) -> int: ...

    @property
    def num_waiting(self) -> int: ...

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        *,
        cache_salt: str = "",
        priority: int = 0,
        user: str = "",
        deadline_s: float | None = None,
    ) -> Generation:
        """Hand a request over; raises `EngineUnavailable`."""
        ...
