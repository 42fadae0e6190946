"""The tokenizer library's own failures: a panic of its Rust code arrives as an exception that is not an `Exception`,
so it would pass every handler and end the process. Here it becomes one."""

from collections.abc import Iterator
from contextlib import contextmanager


class LibraryFailed(Exception):
    """The library has met something it did not expect; it goes on working."""


@contextmanager
def caught() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise LibraryFailed(f"the tokenizer library failed: {error}".splitlines()[0]) from error
        raise
