"""Memory that is given back, and memory that runs out."""

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from chairlift.runner.memory.malloc import return_freed_memory


def release_memory() -> None:
    """To be called when nothing refers to the model any more."""
    gc.unfreeze()  # what is loaded was kept from the collector
    gc.collect()
    gc.freeze()  # other models
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return_freed_memory()


T = TypeVar("T")
# Not all such errors of torch, the driver and MindSpore have a type of their own.
_SIGNS = ("out of memory", "ALLOC_FAILED", "can't allocate memory", "emory isn't enough")


def is_full(error: Exception) -> bool:
    """Memory that runs out on a device: how it is recognised, and a second try."""
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
