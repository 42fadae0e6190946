"""Launching kernels before the one ahead has finished, on GPUs that can (Hopper and later).

A kernel launched so says first that the next one may come, then waits for the one ahead before it reads or writes
anything but weights. Every kernel of ours that is launched early does this itself where `EARLY` is set.
"""

import os

import torch

Early = dict[str, bool]


def early_launch() -> Early:
    """What to pass to a kernel besides its arguments."""
    if os.environ.get("TRITON_INTERPRET") or not torch.cuda.is_available():
        return {"EARLY": False}
    if torch.cuda.get_device_capability() < (9, 0):
        return {"EARLY": False}
    return {"EARLY": True, "launch_pdl": True}
