"""Fields of a body that had no effect, named in a response header and in the request log.

Clients send more than a server knows, so unknown fields are accepted; but a misspelt `temprature` should show.
"""

import re
from collections.abc import Iterable

from starlette.requests import Request

from chairlift.server.request_log.record import Record, record_of

HEADER = "X-Chairlift-Ignored"
_MAX_NAMES = 20
_MAX_LENGTH = 60
_UNFIT = re.compile(r"[^!-+\-.-~]")  # for a list with commas in a header


def ignore(http: Request, names: Iterable[object]) -> None:
    """Adds to those that were ignored before. Names may be of other types on the llm-serving routes, which read lists
    of pairs as objects."""
    record = record_of(http)
    for name in dict.fromkeys(map(str, names)):
        shown = _UNFIT.sub("?", name[:_MAX_LENGTH])
        if len(record.ignored) == _MAX_NAMES:
            record.num_unnamed += 1
        elif shown not in record.ignored:
            record.ignored.append(shown)


def names_of(record: Record) -> list[str]:
    more = [f"and-{record.num_unnamed}-more"] if record.num_unnamed else []
    return [*record.ignored, *more]
