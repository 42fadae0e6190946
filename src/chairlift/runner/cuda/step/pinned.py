"""Pinned memory, piece after piece: what travels between the host and a GPU lies there until it has arrived.

Always: there are more pieces than steps in flight, so none is written over before it has travelled, where each step
takes one at the most and one that failed is waited for.
"""

from collections.abc import Iterator
from itertools import cycle

import torch
from torch import Tensor

from chairlift.runner.machine.to_device import on_host

_NUM_PIECES = 4


def pinned_ring(size: int, dtype: torch.dtype, device: torch.device) -> Iterator[Tensor]:
    """Pieces [size], over and over."""
    return cycle([on_host((size,), dtype, device) for _ in range(_NUM_PIECES)])
