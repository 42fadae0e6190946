"""How many values a large body of JSON holds, before any of them is made: a byte or two can become a hundred.

Always: what passes takes tens of megabytes at most when it is decoded, and a tenth of a second. Nothing that the routes
take comes near the bounds but lists of token ids.
"""

from chairlift.core.errors import InvalidRequest

MAX_VALUES = 2**20  # numbers, for the most part: the token ids of all prompts
MAX_CONTAINERS = 65_536  # lists and objects
MAX_STRINGS = 65_536


def check_values(body: bytes | bytearray) -> None:
    """Raises `InvalidRequest`. What is no JSON at all is told by whoever decodes it."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body  # quotes that end nothing
    _check("strings", plain.count(b'"') // 2, MAX_STRINGS)
    outside = b"".join(plain.split(b'"')[::2])
    _check("lists and objects", outside.count(b"[") + outside.count(b"{"), MAX_CONTAINERS)
    _check("values", outside.count(b","), MAX_VALUES)


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidRequest("body", f"must hold at most {most} {what}, got {count}; send less in a request")
