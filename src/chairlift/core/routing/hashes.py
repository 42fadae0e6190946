"""Names of prefixes that engines and routers agree on: a 64-bit number for each span of a text, chained and salted.

A span is some whole blocks, 256 tokens where a block is smaller: hashing block by block would take a router longer than
all else, and to compute a part of a span again takes a replica little.

Always: equal numbers mean, but for one case in 2^64, equal tokens from the first on under the same salt. An engine
never serves a token by them: its own index compares every token. Little-endian machines agree, whatever their Python.
"""

from hashlib import blake2b

from chairlift.core.packed import TOKEN_BYTES

SPAN_TOKENS = 256
_HASH_BYTES = 8


def span_of(block_size: int) -> int:
    """Tokens of a span."""
    return max(1, SPAN_TOKENS // block_size) * block_size


def root_of(salt: str) -> bytes:
    """The hash before the first span."""
    return blake2b(salt.encode(), digest_size=_HASH_BYTES).digest()


def hash_after(before: bytes, span: bytes) -> bytes:
    """The hash of a span of packed tokens, given that of the span before."""
    return blake2b(span, digest_size=_HASH_BYTES, salt=before).digest()


def span_hashes(tokens: bytes, span: int, salt: str) -> list[bytes]:
    """Of every whole span of packed tokens that may be found in a cache: the last token is always computed."""
    before, width = root_of(salt), TOKEN_BYTES * span
    hashes = []
    for start in range(0, len(tokens) - width, width):
        before = hash_after(before, tokens[start : start + width])
        hashes.append(before)
    return hashes
