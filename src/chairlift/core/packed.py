"""Tokens as bytes: a text is packed once, and then cut, compared and hashed many times.

Always: so many bytes for each token, in the machine's own order; equal bytes mean equal tokens.
"""

from collections.abc import Sequence
from struct import Struct, calcsize

TOKEN_BYTES = calcsize("I")


class PackedPrompt:
    """A prompt as bytes, and the hashes that a router of the same process has made of it."""

    __slots__ = ("hashes", "tokens")

    def __init__(self, tokens: bytes) -> None:
        self.tokens = tokens
        self.hashes: dict[int, bytes] = {}  # by the number of leading tokens


def packed(tokens: Sequence[int]) -> bytes:
    return Struct(f"{len(tokens)}I").pack(*tokens)
