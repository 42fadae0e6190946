"""Memory that was freed but not given back to the system."""

from contextlib import suppress
from ctypes import CDLL

_MMAP_THRESHOLD = -3  # glibc's name for the size from which on a block is the system's own
_LARGE = 256 * 1024


def return_freed_memory() -> None:
    """Loading and large steps leave the C library with freed memory that it would keep; glibc can be asked for it."""
    with suppress(OSError, AttributeError):
        CDLL(None).malloc_trim(0)


def return_large_blocks() -> None:
    """From now on large blocks go back when they are freed. By itself glibc keeps those that are as large as any that
    was freed before."""
    with suppress(OSError, AttributeError):
        CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
