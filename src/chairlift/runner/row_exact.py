"""Functions of torch that give a row the same bits whatever the number of rows."""

import torch
import torch.nn.functional as F
from torch import Tensor

# Torch never splits fewer elements among threads. Borders would move with the number of rows: an element at a border
# is computed outside of vectors.
UNSPLIT = 32768
_VECTOR = 64  # elements: a multiple of any processor's vector length


def sigmoid(x: Tensor) -> Tensor:
    """[T, N], of each row alike whatever T. In whole vectors: a remainder is computed in another way, so its last bit
    may be another, and which elements are in it would depend on the number of rows."""
    width = x.shape[-1]
    padded = F.pad(x, (0, -width % _VECTOR))
    parts = padded.split(max(1, (UNSPLIT - 1) // padded.shape[-1]))
    return torch.cat([torch.sigmoid(part) for part in parts])[:, :width]
