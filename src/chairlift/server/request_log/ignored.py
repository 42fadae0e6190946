"""Fields of a body that had no effect, named in a response header and in the request log.

Clients send more than a server knows, so unknown fields are accepted; but a misspelt `temprature` should show.
"""

import re
from collections.abc import Iterable

from starlette.requests import Request

from chairlift.server.request_log.record import record_of

HEADER = "X-Chairlift-Ignored"
_MAX_NAMES = 20
_MAX_LENGTH = 60
_UNFIT = re.compile(r"[^!-+\-.-~]")  # for a list with commas in a header


def ignore(http: Request, names: Iterable[object]) -> None:
    """Names may be of other types on the llm-serving routes, which read lists of pairs as objects."""
    found = list(dict.fromkeys(map(str, names)))
    shown = dict.fromkeys(_UNFIT.sub("?", name[:_MAX_LENGTH]) for name in found[:_MAX_NAMES])
    more = [f"and-{len(found) - _MAX_NAMES}-more"] if len(found) > _MAX_NAMES else []
    record_of(http).ignored = [*shown, *more]
