"""Transfers between host and device that do not wait."""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(numbers: NDArray[Any], device: torch.device) -> Tensor:
    tensor = torch.from_numpy(numbers)
    if device.type != "cuda":
        return tensor.to(device)
    # Torch does not reuse pinned memory before it was read.
    return tensor.pin_memory().to(device, non_blocking=True)


def on_host(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Host memory, pinned for a GPU."""
    return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")
