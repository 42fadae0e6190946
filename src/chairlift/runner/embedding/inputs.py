"""The inputs of a step as tensors: rows of all inputs one after the other, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BLOCK = 16  # rows
_RATIO = 1.25  # of the longest and the shortest input that attention pads to one length


class Input(NamedTuple):
    tokens: Sequence[int]
    second_at: int = 0  # where the second of two texts begins; 0: there is one


class Group(NamedTuple):
    """Inputs of about the same length, for operations that want a rectangle."""

    rows: Tensor  # int64 [B, L]: rows of the step; beyond an input's end, its first
    is_there: Tensor | None  # bool [B, L]; None: all are


class Blocks(NamedTuple):
    """Where keys and values lie, for kernels that look for them in blocks: one input after the other."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    slots: Tensor  # int64 [T]
    tables: Tensor  # int32 [R, W]; beyond an input's end they mean nothing
    lengths: Tensor  # int32 [R]


@dataclass(frozen=True)
class Rows:
    tokens: Tensor  # int64 [T]
    positions: Tensor  # int64 [T]: from 0 in each input
    types: Tensor  # int64 [T]: 1 in the second of two texts
    starts: Tensor  # int32 [R + 1]: input r is rows starts[r] : starts[r + 1]
    lengths: tuple[int, ...]

    @cached_property
    def blocks(self) -> Blocks:
        lengths, device = np.array(self.lengths), self.tokens.device
        counts = -(-lengths // BLOCK)
        firsts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        # An input's blocks, and then those of the next, so that every entry is a block that there is.
        tables = np.minimum(firsts[:, None] + np.arange(counts.max()), counts.sum() - 1).astype(np.int32)
        return Blocks(
            int(counts.sum()),
            torch.from_numpy(np.repeat(firsts * BLOCK, lengths)).to(device) + self.positions,
            torch.from_numpy(tables).to(device),
            torch.from_numpy(lengths.astype(np.int32)).to(device),
        )

    @cached_property
    def groups(self) -> list[Group]:
        """All inputs, each in one group."""
        order = sorted(range(len(self.lengths)), key=self.lengths.__getitem__)
        spans: list[list[int]] = []
        for index in order:
            if not spans or self.lengths[index] > _RATIO * self.lengths[spans[-1][0]]:
                spans.append([])
            spans[-1].append(index)
        starts = np.concatenate(([0], np.cumsum(self.lengths)))
        return [self._group(np.array(span), starts) for span in spans]

    def _group(self, inputs: np.ndarray, starts: np.ndarray) -> Group:
        lengths = np.array(self.lengths)[inputs]
        offsets = np.arange(lengths.max())
        is_there = offsets < lengths[:, None]
        rows = starts[inputs][:, None] + np.where(is_there, offsets, 0)
        device = self.tokens.device
        there = None if is_there.all() else torch.from_numpy(is_there).to(device)
        return Group(torch.from_numpy(rows).to(device), there)


def rows_of(inputs: Sequence[Input], device: torch.device) -> Rows:
    lengths = tuple(len(each.tokens) for each in inputs)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    owners = np.repeat(np.arange(len(inputs)), lengths)
    positions = np.arange(starts[-1]) - starts[owners]
    # Without a second text none of the positions is in it.
    seconds = np.array([each.second_at or length for each, length in zip(inputs, lengths, strict=True)])
    tokens = np.fromiter((token for each in inputs for token in each.tokens), np.int64, starts[-1])
    return Rows(
        tokens=torch.from_numpy(tokens).to(device),
        positions=torch.from_numpy(positions).to(device),
        types=torch.from_numpy((positions >= seconds[owners]).astype(np.int64)).to(device),
        starts=torch.from_numpy(starts.astype(np.int32)).to(device),
        lengths=lengths,
    )
