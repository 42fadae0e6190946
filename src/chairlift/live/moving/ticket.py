"""A ticket: what an engine needs to fetch the keys and values that another computed, and to check them."""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

import msgspec


class MoveFailed(Exception):
    """A piece did not come, or is not what its ticket says; the request is computed instead."""


class Ticket(msgspec.Struct, array_like=True, frozen=True):
    name: str  # of the piece; random
    layout: str  # of the engine that wrote it
    num_tokens: int  # whose keys and values it has
    tokens: bytes  # the hash of these
    num_bytes: int
    checksum: int  # CRC-32
    path: str | None = None  # the piece as a file, for engines on this node
    address: str | None = None  # the socket that sends it to others


def hash_tokens(tokens: Sequence[int]) -> bytes:
    return blake2b(array("q", tokens).tobytes(), digest_size=16).digest()
