"""Integers with scales of groups, by themselves: what AWQ, GPTQ and others mean, in forms that operations keep.

Groups of 32 columns, or more by 32, can be handed out as they are: half a byte each ("W4") or a signed byte ("W8"),
whatever the format.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from chairlift.models.shards import Cut
from chairlift.runner.weights.source import Stored, part_of

_BLOCK = 32  # columns, of which groups are made
W4, W8 = "W4", "W8"


@dataclass(frozen=True, slots=True)
class Integers:
    """(codes - zeros) * scales"""

    codes: Tensor  # [out, in] uint8 of so many bits, or int8
    zeros: Tensor  # [out, groups]
    scales: Tensor  # float32 [out, groups]
    bits: int
    groups: Tensor | None = None  # int64 [in]: of each column, where they are not in order

    def widened(self) -> Tensor:
        zeros, scales = self.zeros.float(), self.scales.contiguous()
        if self.groups is not None:
            return self.codes.float().sub_(zeros[:, self.groups]).mul_(scales[:, self.groups])
        wide = self.codes.contiguous().float().view(*scales.shape, -1)
        return wide.sub_(zeros[..., None]).mul_(scales[..., None]).view(self.codes.shape)

    def cut(self, cut: Cut) -> "Integers | None":
        """None: it goes through a group."""
        if cut.dim == 0:
            return Integers(
                part_of(self.codes, cut), part_of(self.zeros, cut), part_of(self.scales, cut), self.bits, self.groups
            )  # fmt: skip
        count = self.scales.shape[1]
        own, group = replace(self, codes=part_of(self.codes, cut)), self.codes.shape[1] // count
        if self.groups is not None or (count > 1 and any(at % group for span in cut.spans for at in span)):
            return None
        if count == 1:
            return own
        of_groups = cut._replace(spans=tuple((low // group, high // group) for low, high in cut.spans))
        return replace(own, zeros=part_of(self.zeros, of_groups), scales=part_of(self.scales, of_groups))

    def stored(self, name: str) -> Stored | None:
        """None: groups are no multiples of 32 columns."""
        (rows, columns), count = self.codes.shape, self.scales.shape[1]
        order, group = None, columns // count
        if self.groups is not None:
            order = torch.argsort(self.groups, stable=True).int()
            if not torch.equal(self.groups[order], torch.arange(columns) // group):
                return None
        if count > 1 and group % _BLOCK:
            return None
        codes, zeros, kind = self.codes, self.zeros, W4 if self.bits <= 4 else W8
        if kind == W8 and codes.dtype is torch.uint8:
            half = 1 << self.bits - 1
            codes, zeros = (codes - half).view(torch.int8), zeros.int() - half
        tensors = codes.reshape(rows, count, group), self.scales, zeros.to(torch.int8)
        return Stored(name, kind, tensors, (rows, columns), group, order)


def unpacked(words: Tensor, bits: int) -> Tensor:
    """Numbers of so many bits in words [rows, words], the lowest first and across words. uint8 [rows, numbers]"""
    stored = as_bytes(words)
    if bits == 8:
        return stored
    if bits in (2, 4):
        parts = [stored >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
        return torch.stack(parts, dim=-1).flatten(1)
    singles = np.unpackbits(stored.numpy(), axis=1, bitorder="little")
    count = singles.shape[1] // bits
    digits = torch.from_numpy(singles[:, : count * bits]).view(len(stored), count, bits)
    return (digits << torch.arange(bits, dtype=torch.uint8)).sum(dim=-1, dtype=torch.uint8)


def as_bytes(words: Tensor) -> Tensor:
    """[rows, words] -> uint8 [rows, bytes]"""
    return words.clone(memory_format=torch.contiguous_format).view(torch.uint8)  # a single column may have any stride
