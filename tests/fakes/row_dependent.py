"""Operations whose sums depend on how many rows there are, as a library's do: what a check of batches has to find."""

import torch.nn.functional as F
from torch import Tensor

from chairlift.runner.ops import Weight
from chairlift.runner.torch.ops import TorchOps


class RowDependentWeight:
    """Adds up the columns in two parts; where it cuts depends on the number of rows."""

    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        self._matrix, self._bias = matrix, bias

    def linear(self, x: Tensor) -> Tensor:
        cut = 1 + len(x) % (x.shape[1] - 1)
        first = F.linear(x[:, :cut].contiguous(), self._matrix[:, :cut].contiguous(), self._bias)
        return first + F.linear(x[:, cut:].contiguous(), self._matrix[:, cut:].contiguous())

    def logits(self, x: Tensor) -> Tensor:
        return self.linear(x).float()

    def rows(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._matrix)


class RowDependentOps(TorchOps):
    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        return RowDependentWeight(matrix, bias)
