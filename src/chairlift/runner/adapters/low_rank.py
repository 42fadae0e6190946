"""An adapter's matrices as weights: what `linear` adds to the products of the base.

    x [T, in] -> A of all parts, stacked [sum of ranks, in] -> each part's B [rows, rank], factor included -> its rows

Always: made of the operations' own weights, so a row's bits depend on its own inputs where those of a base product do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from chairlift.models.adapters.adapter import AdapterSpec, LowRankPart
from chairlift.models.tensors import MatrixKey
from chairlift.runner.adapters.store import StoredAdapter
from chairlift.runner.ops import Ops, Weight


@runtime_checkable
class MakesApart(Protocol):
    """Operations that can keep some weights in memory of their own, which is freed with them."""

    def apart(self) -> Ops: ...


class PartTensors(NamedTuple):
    first: int  # row of the whole matrix
    down: Tensor  # A [rank, in]
    up: Tensor  # B [rows, rank], factor included


class PartWeight(NamedTuple):
    rows: slice  # of the whole matrix
    ranks: slice  # of the stacked A
    up: Weight


@dataclass(frozen=True, slots=True)
class LowRank:
    """What an adapter adds to one matrix."""

    down: Weight
    parts: tuple[PartWeight, ...]

    def add(self, x: Tensor, out: Tensor) -> None:
        """To the product of the base with the same rows."""
        low = self.down.linear(x)
        for rows, ranks, up in self.parts:
            out[:, rows] += up.linear(low[:, ranks].contiguous())


@dataclass(frozen=True, slots=True)
class HostAdapter:
    matrices: Mapping[MatrixKey, LowRank]
    num_bytes: int


def read_matrices(spec: AdapterSpec, dtype: torch.dtype) -> dict[MatrixKey, list[PartTensors]]:
    """The tensors of an adapter, one matrix after the other, rounded to the model's type."""
    stored = StoredAdapter(spec)
    grouped = groupby(spec.parts, key=lambda part: (part.place.layer, part.place.role))
    return {key: [_rounded(stored, part, dtype) for part in parts] for key, parts in grouped}


def _rounded(stored: StoredAdapter, part: LowRankPart, dtype: torch.dtype) -> PartTensors:
    """Once: in numbers wide enough for that."""
    down, up = stored.part(part)
    scaled = up.to(torch.promote_types(dtype, torch.float32)) * part.factor
    return PartTensors(part.place.first, down.to(dtype), scaled.to(dtype))


def make_host_adapter(spec: AdapterSpec, ops: Ops, dtype: torch.dtype) -> HostAdapter:
    """For operations on the CPU, which read it where it lies."""
    ops = ops.apart() if isinstance(ops, MakesApart) else ops
    tensors = read_matrices(spec, dtype)
    num_bytes = sum(part.down.nbytes + part.up.nbytes for parts in tensors.values() for part in parts)
    return HostAdapter({key: _low_rank(parts, ops) for key, parts in tensors.items()}, num_bytes)


def _low_rank(parts: Sequence[PartTensors], ops: Ops) -> LowRank:
    weights, low = [], 0
    for first, down, up in parts:
        rows, ranks = slice(first, first + len(up)), slice(low, low + len(down))
        weights.append(PartWeight(rows, ranks, ops.weight(up.contiguous())))
        low += len(down)
    return LowRank(ops.weight(torch.cat([part.down for part in parts])), tuple(weights))
