"""What a scheduling policy decides: who steps on first, and who steps off when blocks run out.

A policy sees requests through `Standing`, a read-only view, and never touches blocks.
"""

from collections.abc import Iterable
from typing import Protocol

from chairlift.core.ids import RequestId
from chairlift.core.queue import Rank
from chairlift.core.request import Request


class Standing(Protocol):
    """How far a request has come, for reading."""

    @property
    def id(self) -> RequestId: ...
    @property
    def request(self) -> Request: ...
    @property
    def arrival(self) -> float: ...
    @property
    def num_computed(self) -> int: ...
    @property
    def num_known(self) -> int: ...
    @property
    def num_output(self) -> int: ...
    @property
    def num_preempted(self) -> int: ...


class Policy(Protocol):
    def rank(self, standing: Standing) -> Rank:
        """Smaller ranks are admitted first, ties by id; asked once, when the request is queued."""
        ...

    def victim(self, running: Iterable[Standing]) -> RequestId:
        """Which running request gives its blocks back; `running` is never empty, in order of admission."""
        ...
