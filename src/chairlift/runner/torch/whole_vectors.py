"""Exponentials of rows in whole vectors: a remainder is computed in another way, so its last bit may be another, and
which elements are in it would depend on the number of rows."""

import torch
import torch.nn.functional as F
from torch import Tensor

_VECTOR = 64  # elements: a multiple of any processor's vector length


def sigmoid(x: Tensor) -> Tensor:
    """[T, N], of each row alike whatever T."""
    width = x.shape[-1]
    return torch.sigmoid(F.pad(x, (0, -width % _VECTOR)))[:, :width]
