"""Sources of tensors: one protocol for every kind of file, with the names of that file.

Rows of heads put into the order of our rotation, and back.
"""

from collections.abc import Collection
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.models.shards import Cut
from chairlift.models.tensors import HeadOrder


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


class TensorSource(Protocol):
    """Each tensor is read once; nothing is kept."""

    @property
    def names(self) -> Collection[str]: ...

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """In the type and on the device where it is stored or cheapest to make, perhaps a view of a mapped file.
        Raises `InvalidConfig` naming tensor and file when it is missing, damaged or of another shape."""

    def file_of(self, name: str) -> str:
        """The file of a tensor, for messages."""


@runtime_checkable
class ByteSource(Protocol):
    """A source of tensors with some that are bytes."""

    def read_bytes(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """As `read`, uint8."""


class CutSource(TensorSource, Protocol):
    """A source that can read parts of tensors."""

    def read(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Tensor:
        """With a cut that part of the tensor, as little else as the file allows."""


def part_of(tensor: Tensor, cut: Cut | None) -> Tensor:
    """A cut of a whole tensor."""
    if cut is None:
        return tensor
    parts = [tensor.narrow(cut.dim, low, high - low) for low, high in cut.spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, cut.dim)
