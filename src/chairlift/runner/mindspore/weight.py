"""A matrix in MindSpore's memory, as the weight of a decoder; tensors on their way there and back, on a CPU without a
copy."""

from typing import Any

import mindspore as ms
import torch
from mindspore import ops
from numpy.typing import NDArray
from torch import Tensor


def put(values: NDArray[Any]) -> Any:
    return ms.Tensor.from_numpy(values)


def to_mindspore(tensor: Tensor) -> Any:
    return put(tensor.contiguous().numpy())


def to_torch(tensor: Any) -> Tensor:
    return torch.from_numpy(tensor.asnumpy())


times = ops.MatMul(transpose_b=True)  # x [T, in], a matrix [out, in] -> [T, out]


class MindSporeWeight:
    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        self.matrix: Any = to_mindspore(matrix)
        self.bias: Any = None if bias is None else to_mindspore(bias)

    def linear(self, x: Tensor) -> Tensor:
        out = times(to_mindspore(x), self.matrix)
        return to_torch(out if self.bias is None else out + self.bias)

    def logits(self, x: Tensor) -> Tensor:
        out = self.linear(x)
        return out if out.dtype is torch.float64 else out.float()

    def rows(self, ids: Tensor) -> Tensor:
        return to_torch(ops.gather(self.matrix, put(ids.int().numpy()), 0))
