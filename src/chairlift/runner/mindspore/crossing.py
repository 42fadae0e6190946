"""Tensors from numpy or torch to MindSpore and back; on a CPU without a copy."""

from typing import Any

import mindspore as ms
import torch
from numpy.typing import NDArray
from torch import Tensor


def put(values: NDArray[Any]) -> Any:
    return ms.Tensor.from_numpy(values)


def to_mindspore(tensor: Tensor) -> Any:
    return put(tensor.contiguous().numpy())


def to_torch(tensor: Any) -> Tensor:
    return torch.from_numpy(tensor.asnumpy())
