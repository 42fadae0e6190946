"""The cache salt of a request, which separates cached prefixes.

Always: with API keys, a request shares prefixes within its key, or within its key's group, unless all share. A client's
own `cache_salt` separates further and reaches no other key: the parts of a salt are digests of equal length, so no
client can write another key's. A key's part is a digest of its digest, the same after every reload.
"""

from hashlib import blake2b

from chairlift.config.keys import ApiKey


def salt_of(key: ApiKey, own: str, share: str) -> str:
    """`own`: the client's `cache_salt`. `share`: the setting `share_prefixes`."""
    if share == "all":
        return own
    client = _digest(own.encode(errors="surrogatepass"))
    if key.cache_group is not None:
        return f"group {_digest(key.cache_group.encode())} {client}"
    return f"key {_digest(key.digest)} {client}"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16, person=b"cached prefixes").hexdigest()
