"""Turns panics of the tokenizer and grammar libraries, a `BaseException` that would end the process, into an
`Exception`."""

from collections.abc import Iterator
from contextlib import contextmanager

_MAX_MESSAGE = 300


class LibraryFailed(Exception):
    """The library can still be used."""


@contextmanager
def caught(library: str = "tokenizer") -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise LibraryFailed(f"the {library} library failed: {error}".splitlines()[0][:_MAX_MESSAGE]) from error
        raise
