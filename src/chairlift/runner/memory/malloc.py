"""Returning freed memory to the system, which glibc keeps."""

from contextlib import suppress
from ctypes import CDLL

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of mallopt
_LARGE = 256 * 1024


def return_freed_memory() -> None:
    """For use after loading and large steps."""
    with suppress(OSError, AttributeError):
        CDLL(None).malloc_trim(0)


def return_large_blocks() -> None:
    """From now on. By default glibc keeps blocks no larger than the largest freed before."""
    with suppress(OSError, AttributeError):
        CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
