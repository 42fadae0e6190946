"""Whose cached prefixes a request may use, as the salt that the engine keeps them apart by.

Always: where there are API keys, a request shares with those of its own key, or of the group that the operator put its
key in, unless all are to share. A client's own `cache_salt` parts these further and leads nowhere else: the parts of a
salt are digests of equal length, so none can be written that reads as another key's. A key is known by a digest of its
digest, which stays the same however often the file of keys is read and in whatever order.
"""

from hashlib import blake2b

from chairlift.config.keys import ApiKey


def salt_of(key: ApiKey | None, own: str, share: str) -> str:
    """`own`: what the client asked for. `share` is the setting `share_prefixes`."""
    if key is None or share == "all":
        return own
    if key.cache_group is not None:
        return f"group {_digest(key.cache_group.encode())} {_digest(_bytes(own))}"
    return f"key {_digest(key.digest)} {_digest(_bytes(own))}"


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16, person=b"cached prefixes").hexdigest()
