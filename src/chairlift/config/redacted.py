"""Addresses as they may be shown: without the names, passwords and tokens that may stand in them."""


def redacted(url: str) -> str:
    """`http://alice:secret@host:4318/v1?token=secret` becomes `http://***@host:4318/v1?***`."""
    scheme, slashes, rest = url.partition("//")
    _, at, host = rest.rpartition("@")
    path, mark, query = f"{scheme}{slashes}{'***' if at else ''}{at}{host}".partition("?")
    return f"{path}{mark}{'***' if query else ''}"
