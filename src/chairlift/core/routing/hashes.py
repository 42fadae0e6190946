"""Names of prefixes that engines and routers agree on: a 64-bit number for each span of a text, chained and salted.

A span is some whole blocks, 256 tokens where a block is smaller: hashing block by block would take a router longer than
all else, and to compute a part of a span again takes a replica little.

Always: equal numbers mean, but for one case in 2^64, equal tokens from the first on under the same salt. An engine
never serves a token by them: its own index compares every token. Little-endian machines agree, whatever their Python.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

SPAN_TOKENS = 256
_HASH_BYTES = 8
_TOKEN_BYTES = array("I").itemsize


def span_of(block_size: int) -> int:
    """Tokens of a span."""
    return max(1, SPAN_TOKENS // block_size) * block_size


def root_of(salt: str) -> bytes:
    """The hash before the first span."""
    return blake2b(salt.encode(), digest_size=_HASH_BYTES).digest()


def packed(tokens: Sequence[int]) -> bytes:
    return array("I", tokens).tobytes()


def hash_after(before: bytes, span: bytes) -> bytes:
    """The hash of a span of packed tokens, given that of the span before."""
    return blake2b(before + span, digest_size=_HASH_BYTES).digest()


def span_hashes(tokens: Sequence[int], span: int, salt: str) -> list[bytes]:
    """Of every whole span that may be found in a cache: the last token is always computed."""
    before, data, width = root_of(salt), packed(tokens), _TOKEN_BYTES * span
    hashes = []
    for start in range(0, len(data) - width, width):
        before = hash_after(before, data[start : start + width])
        hashes.append(before)
    return hashes
