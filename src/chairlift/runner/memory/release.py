"""Giving back what a dropped model had: the collector's cycles, the device's cached memory, and the system's."""

import gc

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
