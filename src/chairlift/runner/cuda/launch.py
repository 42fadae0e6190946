"""Launching kernels before the one ahead has finished, on GPUs that can (Hopper and later).

A kernel launched so says first that the next one may come, then waits for the one ahead before it reads or writes
anything but weights. Every kernel of ours that is launched early does this itself where `EARLY` is set. It pays in
steps of one row, whose kernels are short; in large ones it costs a little.
"""

import os
from functools import cache

import torch

Launch = dict[str, bool]


def launch_of(num_rows: int) -> Launch:
    """What to pass to a kernel of a step of so many rows besides its arguments."""
    return {"EARLY": True, "launch_pdl": True} if num_rows == 1 and _is_able() else {"EARLY": False}


@cache
def _is_able() -> bool:
    is_interpreted = bool(os.environ.get("TRITON_INTERPRET"))
    return not is_interpreted and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
