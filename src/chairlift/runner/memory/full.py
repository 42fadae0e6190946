"""Memory that runs out on a device: how it is recognised, and a second try."""

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")
# Not all such errors of torch, the driver and MindSpore have a type of their own.
_SIGNS = ("out of memory", "ALLOC_FAILED", "can't allocate memory", "emory isn't enough")


def is_full(error: Exception) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(sign in str(error) for sign in _SIGNS)


def with_room(make: Callable[[], T]) -> T:
    """What `make` makes, which must be able to run twice: where memory runs out, again with what torch keeps freed."""
    try:
        return make()
    except (RuntimeError, MemoryError) as error:
        if not is_full(error):
            raise
    torch.cuda.empty_cache()
    return make()
