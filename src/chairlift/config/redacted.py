"""Addresses as they may be shown: without the names, passwords and tokens that may stand in them."""

import re

_USER = re.compile(r"(?<=//).*@", re.DOTALL)
_QUERY = re.compile(r"(?<=\?).+", re.DOTALL)


def redacted(url: str) -> str:
    """`http://alice:secret@host:4318/v1?token=secret` becomes `http://***@host:4318/v1?***`."""
    return _QUERY.sub("***", _USER.sub("***@", url))
