"""What the HTTP front end needs from the engine's client: submit a request, hear of its outputs, abort it.

The client in `live` has this shape, and so has the scripted one in the tests.
"""

from typing import Protocol

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.params import SamplingParams
from chairlift.live.client import Listener
from chairlift.live.messages import EngineInfo
from chairlift.live.watching import Watching


class Generation(Protocol):
    """One request, all samples together, whichever engine it is in.

    Its listener is told when no engine will come, with `EngineUnavailable`. A request that the engine refuses or fails,
    or that ends the engine, ends with an output whose `finish` is "error".
    """

    @property
    def num_made(self) -> int:
        """Tokens that the engine made of it, handed out or kept."""
        ...

    def abort(self) -> None:
        """Free the request in the engine; may be called at any time and more than once."""
        ...

    def abort_sample(self, sample: int) -> None:
        """Free one sample, whose text is complete before its tokens are."""
        ...

    def hold(self) -> None:
        """Keep what comes until `release`."""
        ...

    def release(self) -> None: ...


class EngineClient(Protocol):
    @property
    def info(self) -> EngineInfo | None:
        """What the last engine said of itself; None before there was one, and when none will come."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether there is an engine now. While there is none, requests wait for the next."""
        ...

    @property
    def num_running(self) -> int: ...

    @property
    def num_waiting(self) -> int: ...

    @property
    def watching(self) -> Watching:
        """What the engine shows of itself."""
        ...

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        listener: Listener,
        *,
        attributes: Attributes = NO_ATTRIBUTES,
        expires: float | None = None,
        name: str = "",
        is_traced: bool = False,
    ) -> Generation:
        """Hand a request over; raises `EngineUnavailable`. The listener hears nothing before this has returned."""
        ...
