"""The first check of every generating route: room for the request, and its time limit.

Always: without room a request is refused before its body is read. Its time runs from here: the least of its header's,
its body's and the server's limit. From here on its key pays, also where the request is then refused.
"""

import math
import time

from starlette.requests import ClientDisconnect, Request

from chairlift.core.errors import InvalidRequest
from chairlift.server.admission.api_keys import key_of, payers_of
from chairlift.server.admission.cost import Cost
from chairlift.server.admission.rejected import OutOfTime
from chairlift.server.context import context_of
from chairlift.server.request_log.record import record_of
from chairlift.server.sockets.connection import connection_of

DEADLINE_HEADER = "X-Deadline-Ms"


class TimeLimit:
    """Of one request, from now."""

    def __init__(self, max_s: float | None, given_s: float | None) -> None:
        self._now = time.monotonic()
        self._max_s = max_s
        self.given_s = given_s  # by the client; None: it did not say

    def allow(self, timeout_s: float | None) -> None:
        """Applies the body's `timeout`; raises `InvalidRequest`."""
        if timeout_s is None:
            return
        if not 0 < timeout_s < math.inf:
            raise InvalidRequest("timeout", f"must be seconds from now, above 0, got {timeout_s}")
        self.given_s = timeout_s if self.given_s is None else min(self.given_s, timeout_s)

    @property
    def expires(self) -> float | None:
        limits = [limit for limit in (self._max_s, self.given_s) if limit is not None]
        return self._now + min(limits) if limits else None

    @property
    def is_over(self) -> bool:
        return self.expires is not None and time.monotonic() >= self.expires


def enter(http: Request, makes_text: bool = True) -> TimeLimit:
    """`makes_text`: what the route is for; other models make vectors or scores. Raises `Rejected`."""
    context_of(http).check_makes(makes_text)
    load = context_of(http).load
    load.check(key_of(http))
    time_left = TimeLimit(load.settings.max_request_seconds, _deadline_s(http.headers.get(DEADLINE_HEADER)))
    begin_cost(http, time_left).owe(load, payers_of(http))
    return time_left


def begin_cost(http: Request, time_left: TimeLimit | None = None) -> Cost:
    connection, key = connection_of(http.scope), key_of(http)

    def check() -> None:
        if connection.is_gone:
            raise ClientDisconnect
        if time_left is not None and time_left.is_over:
            raise OutOfTime

    turn = context_of(http).load.turn
    cost = record_of(http).cost = Cost("" if key is None else key.name, check, turn=turn)
    return cost


def _deadline_s(given: str | None) -> float | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and 0 < len(given) <= 12 and int(given) > 0):
        raise InvalidRequest(DEADLINE_HEADER, f"must be a whole number of milliseconds above 0, got {given[:40]!r}")
    return int(given) / 1000
