"""The first check of every generating route: room for the request, and its time limit.

Always: without room a request is refused before its body is read. Its time runs from here: the least of its header's,
its body's and the server's limit. A key pays for tokenized text even when the request is then refused.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from chairlift.core.errors import InvalidRequest
from chairlift.server.admission.api_keys import key_of, payers_of
from chairlift.server.context import context_of
from chairlift.server.encoder import TokenLimit

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


def enter(http: Request, makes_text: bool = True) -> TimeLimit:
    """`makes_text`: what the route is for; other models make vectors or scores. Raises `Rejected`."""
    context_of(http).check_makes(makes_text)
    load = context_of(http).load
    load.check(key_of(http))
    return TimeLimit(load.settings.max_request_seconds, _deadline_s(http.headers.get(DEADLINE_HEADER)))


@contextmanager
def charged(http: Request, limit: TokenLimit) -> Iterator[None]:
    """Charges the key for a request refused inside and for its tokens."""
    try:
        yield
    except InvalidRequest:
        if limit.num_made or limit.has_refused:
            context_of(http).load.charge(payers_of(http), limit.num_made, num_requests=1)
        raise


def _deadline_s(given: str | None) -> float | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and 0 < len(given) <= 12 and int(given) > 0):
        raise InvalidRequest(DEADLINE_HEADER, f"must be a whole number of milliseconds above 0, got {given[:40]!r}")
    return int(given) / 1000
