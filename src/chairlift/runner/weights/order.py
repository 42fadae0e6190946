"""Rows of heads put into the order of our rotation, and back."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.config.tensors import HeadOrder


def in_order(tensor: Tensor, order: HeadOrder | None) -> Tensor:
    """A stored tensor with the rows of its heads as the model has them."""
    return tensor if order is None else tensor[torch.from_numpy(places(order, len(tensor)))]


def as_stored(tensor: Tensor, order: HeadOrder | None) -> Tensor:
    """The other way round."""
    return tensor if order is None else tensor[torch.from_numpy(np.argsort(places(order, len(tensor))))]


def places(order: HeadOrder, num_rows: int) -> NDArray[np.int64]:
    """Where each row of such a tensor is stored."""
    heads = np.arange(order.num_heads * order.head_dim).reshape(order.num_heads, order.head_dim)[:, order.rows]
    return np.concatenate((heads.ravel(), np.arange(heads.size, num_rows)))
