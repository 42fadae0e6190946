"""Bounds the values in a large JSON body before it is decoded, when a byte or two can become a hundred.

Always: a body that passes takes at most tens of megabytes and a tenth of a second to decode. Of valid requests only
lists of token ids come near the bounds.
"""

from chairlift.core.errors import InvalidRequest

MAX_VALUES = 2**20  # numbers, for the most part: the token ids of all prompts
MAX_CONTAINERS = 65_536  # lists and objects
MAX_STRINGS = 65_536


def check_values(body: bytes | bytearray) -> None:
    """Raises `InvalidRequest`; invalid JSON is left to the decoder."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body  # quotes that end nothing
    _check("strings", plain.count(b'"') // 2, MAX_STRINGS)
    outside = b"".join(plain.split(b'"')[::2])
    _check("lists and objects", outside.count(b"[") + outside.count(b"{"), MAX_CONTAINERS)
    _check("values", outside.count(b","), MAX_VALUES)


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidRequest("body", f"must hold at most {most} {what}, got {count}; send less in a request")
