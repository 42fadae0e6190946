"""Turns panics of the tokenizer library, a `BaseException` that would end the process, into an `Exception`."""

from collections.abc import Iterator
from contextlib import contextmanager


class LibraryFailed(Exception):
    """The library can still be used."""


@contextmanager
def caught() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise LibraryFailed(f"the tokenizer library failed: {error}".splitlines()[0]) from error
        raise
