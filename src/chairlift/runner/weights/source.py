"""Sources of tensors: one protocol for every kind of file, with the names of that file.

A quantised matrix as a file stores it is one value, whatever its kind. Rows of heads are put into the order of our
rotation, and back.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.parts import Order, Part, SectionOrder
from chairlift.models.shards import Cut


def in_order(tensor: Tensor, order: Order | None) -> Tensor:
    """A stored tensor with the rows of its heads as the model has them."""
    return tensor if order is None else tensor[torch.from_numpy(places(order, len(tensor)))]


def arranged(tensor: Tensor, part: Part) -> Tensor:
    """A part's tensor with rows and columns as the model has them."""
    rows = in_order(tensor, part.order)
    return rows if part.columns is None else in_order(rows.t(), part.columns).t()


def as_stored(tensor: Tensor, order: Order | None) -> Tensor:
    """The other way round."""
    return tensor if order is None else tensor[torch.from_numpy(np.argsort(places(order, len(tensor))))]


def places(order: Order, num_rows: int) -> NDArray[np.int64]:
    """Where each row of such a tensor is stored."""
    if isinstance(order, SectionOrder):
        rows = np.arange(order.before, num_rows).reshape(order.num_groups, -1)
        sections = [each.ravel() for each in np.split(rows, np.cumsum(order.sizes)[:-1], axis=1)]
        if order.first is not None:
            sections[0] = sections[0][places(order.first, len(sections[0]))]
        return np.concatenate((np.arange(order.before), *sections))
    heads = np.arange(order.num_heads * order.head_dim).reshape(order.num_heads, order.head_dim)[:, order.rows]
    return np.concatenate((heads.ravel(), np.arange(heads.size, num_rows)))


@dataclass(frozen=True, slots=True)
class Stored:
    """A quantised matrix: numbers of few bits with scales."""

    name: str  # of tensor and file, for messages
    kind: str  # as `quantised.py` lists them ("W4", "FP8", ...), or as GGUF calls it: "Q4_0", ...
    tensors: tuple[Tensor, ...]  # [out, groups, ...], of experts [experts, out, groups, ...]; views of a mapped file
    shape: tuple[int, ...]  # [out, in], of experts [experts, out, in]
    group: int  # columns that share a scale
    order: Tensor | None = None  # int32 [in]: columns as they have to lie for groups; None: as they do

    def expert(self, index: int) -> "Stored":
        return replace(self, shape=self.shape[1:], tensors=tuple(tensor[index] for tensor in self.tensors))

    def in_order(self, order: Order | None) -> "Stored":
        return replace(self, tensors=tuple(in_order(tensor, order) for tensor in self.tensors))

    def cut(self, cut: Cut) -> "Stored":
        """Raises `InvalidConfig` where the cut goes through a group."""
        unit = self.group if cut.dim else 1
        if at := self._cut_group(cut):
            raise InvalidConfig(
                f"{self.name} is {self.kind}, whose blocks of {unit} cannot be cut at column {at} for tensor "
                "parallelism; use --quantize none, or another --tensor-parallel"
            )
        spans = tuple((low // unit, high // unit) for low, high in cut.spans)
        shape = list(self.shape)
        shape[cut.dim] = sum(high - low for low, high in cut.spans)
        tensors = tuple(part_of(tensor, cut._replace(spans=spans)) for tensor in self.tensors)
        return replace(self, tensors=tensors, shape=tuple(shape))

    def is_whole(self, cut: Cut) -> bool:
        """The cut goes through no group."""
        return not self._cut_group(cut)

    def _cut_group(self, cut: Cut) -> int:
        """The first column of the cut that is inside a group; 0: none is."""
        return next((at for span in cut.spans for at in span if cut.dim and at % self.group), 0)


class TensorSource(Protocol):
    """Each tensor is read once; nothing is kept."""

    @property
    def names(self) -> Collection[str]: ...

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """In the type and on the device where it is stored or cheapest to make, perhaps a view of a mapped file.
        Raises `InvalidConfig` naming tensor and file when it is missing, damaged or of another shape."""

    def file_of(self, name: str) -> str:
        """The file of a tensor, for messages."""


class CutSource(TensorSource, Protocol):
    """A source that can read parts of tensors."""

    def read(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Tensor:
        """With a cut that part of the tensor, as little else as the file allows."""


@runtime_checkable
class StoredSource(Protocol):
    """A source of tensors with some that are quantised matrices."""

    def stored(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Stored | None:
        """As `read`, without computing; None: it is stored as numbers."""


def part_of(tensor: Tensor, cut: Cut | None) -> Tensor:
    """A cut of a whole tensor."""
    if cut is None:
        return tensor
    parts = [tensor.narrow(cut.dim, low, high - low) for low, high in cut.spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, cut.dim)


def kept(source: object, parts: Sequence[Part], kinds: Collection[str]) -> list[Stored] | None:
    """The parts of a matrix as they are stored, if all of them are of these kinds."""
    found = []
    for part in parts if kinds else ():
        stored = stored_part(source, part)
        if stored is None or stored.kind not in kinds:
            return None
        found.append(stored)
    return found or None


def stored_part(source: object, part: Part) -> Stored | None:
    if part.columns is not None:
        return None
    stored = source.stored(part.name, part.shape) if isinstance(source, StoredSource) else None
    return stored and stored.in_order(part.order)
