"""What crosses between nodes, the members' list and front ends: maps in MessagePack, which other versions can read.

A node tells the list each second what it is (`Tell`) and gets `Welcome` or `Refused`. When one of its engines has died
it tells what that was busy with (`Ended`), and when it goes it says `Leave`. The list publishes `Members` to the front
ends of its machine, each second and at every change, passes `Ended` on, and tells who has left (`Left`).
"""

import msgspec

from chairlift.config.version import VERSION
from chairlift.telemetry.metrics.figures import Figures


class MemberEngine(msgspec.Struct, frozen=True):
    """An engine that is ready, and its load."""

    address: str
    fingerprint: str | None = None  # None: answers are not exact
    span: int = 0  # tokens that a hash of a prefix names
    max_tokens: int = 0  # of the longest request it can serve, prompt and output
    num_running: int = 0
    num_waiting: int = 0
    is_draining: bool = False
    queued: int = 0  # work before a new request's own, in tokens
    figures: Figures | None = None  # None: it has told none yet
    number: int = -1  # under which operators see it; the list gives it


class Tell(msgspec.Struct, tag=True, frozen=True):
    node: str  # its name, another one for each start
    model: str = ""
    config: str = ""  # a digest of what describes the model
    version: str = VERSION
    engines: list[MemberEngine] = []  # that are ready
    starting: list[str] = []  # addresses of those that load, at first or again


class Leave(msgspec.Struct, tag=True, frozen=True):
    node: str


class Ended(msgspec.Struct, tag=True, frozen=True):
    """An engine has died."""

    address: str
    was_killed: bool
    keys: dict[bytes, list[int]]  # of requests, by front end


class Welcome(msgspec.Struct, tag=True, frozen=True):
    pass


class Refused(msgspec.Struct, tag=True, frozen=True):
    reason: str


class Left(msgspec.Struct, tag=True, frozen=True):
    """A node has said that it leaves, once its engines had no requests."""

    addresses: list[str]  # of its engines


class Members(msgspec.Struct, tag=True, frozen=True):
    engines: list[MemberEngine]
    starting: list[str] = []  # as in `Tell`


ToList = Tell | Leave | Ended
FromList = Welcome | Refused
Published = Members | Ended | Left
