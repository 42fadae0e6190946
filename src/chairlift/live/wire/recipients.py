"""The recipients of an engine's requests: the front end and key that each one's outputs go to.

A value of its own, since the switchboard fills it and the runner that notes its steps reads it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chairlift.core.ids import RequestId
from chairlift.core.request import Progress
from chairlift.telemetry.phases import Mark

FrontEnd = bytes


@dataclass(slots=True)
class Recipient:
    """Where the outputs of a request go."""

    front_end: FrontEnd
    key: int
    sample: int
    num_cached: int | None = None  # prompt tokens found in the cache at its first admission
    name: str = ""
    marks: list[Mark] | None = None  # not sent yet; None: not traced


class Recipients:
    def __init__(self, live: Mapping[RequestId, Progress]) -> None:
        """`live`: the scheduler's."""
        self.by_request: dict[RequestId, Recipient] = {}
        self._live = live

    def keys_of(self, requests: Iterable[RequestId]) -> dict[FrontEnd, set[int]]:
        """Their keys, by front end."""
        found: dict[FrontEnd, set[int]] = {}
        for request in requests:
            recipient = self.by_request.get(request) or self._of_search(request)
            if recipient is not None:
                found.setdefault(recipient.front_end, set()).add(recipient.key)
        return found

    def _of_search(self, request: RequestId) -> Recipient | None:
        """Most members of a search have no recipient; those that do share it."""
        progress = self._live.get(request)
        members = () if progress is None or progress.beams is None else progress.beams.members
        return next((self.by_request[member] for member in members if member in self.by_request), None)
