"""A ticket: what an engine needs to fetch the keys and values that another computed, and to check them."""

import re
import secrets
from array import array
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

_NAME = re.compile(r"[0-9a-f]{32}")


class MoveFailed(Exception):
    """A piece did not come, or is not what its ticket says; the request is computed instead."""


class Ticket(msgspec.Struct, array_like=True, frozen=True):
    name: str  # of the piece; random
    layout: str  # of the engine that wrote it
    num_tokens: int  # whose keys and values it has
    tokens: bytes  # the hash of these
    num_bytes: int
    checksum: int  # CRC-32
    address: str | None = None  # the socket that sends it to engines of other machines


def new_name() -> str:
    return secrets.token_hex(16)


def is_name(name: str) -> bool:
    """Whether it can be the name of a piece; no other file is read, or removed."""
    return _NAME.fullmatch(name) is not None


def hash_tokens(tokens: Sequence[int]) -> bytes:
    return blake2b(array("q", tokens).tobytes(), digest_size=16).digest()
