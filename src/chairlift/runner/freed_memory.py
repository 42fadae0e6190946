"""Memory that was freed but not given back to the system."""

from contextlib import suppress
from ctypes import CDLL


def return_freed_memory() -> None:
    """Loading and large steps leave the C library with freed memory that it would keep; glibc can be asked for it."""
    with suppress(OSError, AttributeError):
        CDLL(None).malloc_trim(0)
