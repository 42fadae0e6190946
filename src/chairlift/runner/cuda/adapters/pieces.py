"""An adapter in the host's memory as its file stores it, and where its tensors belong in a slot.

    file   | q A | q B | k A | k B | ...            in pieces that fit a buffer, each with whole rows
    slot   | A of all parts ... | B of all ... |    rounded, with the factor, on the slot's device

Always: every number of the slot that no tensor has is 0 before. Knows no device.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from chairlift.config.adapters.adapter import AdapterSpec
from chairlift.config.model import ModelConfig
from chairlift.runner.adapters.stored import StoredAdapter
from chairlift.runner.cuda.adapters.layout import RANKS, num_blocks, slot_layout

_ALIGNED = 16  # bytes, between tensors of a piece


class Placed(NamedTuple):
    """Rows of a tensor and their place in a slot."""

    rows: Tensor  # [rows, columns], as stored
    first: int  # number of the slot
    step: int  # numbers of the slot from one row to the next
    factor: float = 1.0

    @property
    def num_bytes(self) -> int:
        """With what comes before the next."""
        return -(-self.rows.nbytes // _ALIGNED) * _ALIGNED

    def cut(self, low: int, high: int) -> "Placed":
        return self._replace(rows=self.rows[low:high], first=self.first + low * self.step)

    @torch.inference_mode()
    def write(self, rows: Tensor, slot: Tensor) -> None:
        """`rows`: these, on the device of the slot. Rounded once."""
        target = slot.as_strided(rows.shape, (self.step, 1), slot.storage_offset() + self.first)
        if self.factor == 1.0:
            target.copy_(rows)
        else:
            wide = rows if rows.dtype in (torch.float32, slot.dtype) else rows.float()
            torch.mul(wide, self.factor, out=target)


Piece = list[Placed]


@dataclass(frozen=True, slots=True)
class SlotAdapter:
    tensors: Sequence[Placed]
    num_blocks: int  # of ranks
    num_numbers: int  # that it takes of a slot
    num_bytes: int  # of the host's memory


def make_slot_adapter(spec: AdapterSpec, config: ModelConfig) -> SlotAdapter:
    layout, stored = slot_layout(config), StoredAdapter(spec)
    blocks = num_blocks(max(part.rank for part in spec.parts))
    rank, tensors = blocks * RANKS, []
    for part in spec.parts:
        place, first = layout.matrices[part.place.layer, part.place.role], part.place.first
        number = list(accumulate(place.heights, initial=0)).index(first)  # of the part
        down, up = stored.part(part)
        tensors.append(Placed(down, (place.down + number * place.width) * rank, place.width))
        tensors.append(Placed(up, (place.up + first) * rank, rank, part.factor))
    own = {each.rows.untyped_storage().data_ptr(): each.rows.untyped_storage().nbytes() for each in tensors}
    return SlotAdapter(tensors, blocks, layout.num_units * rank, sum(own.values()))


def pieces(tensors: Sequence[Placed], size: int) -> Iterator[Piece]:
    """Of so many bytes at most; each row fits one."""
    piece, room = Piece(), size
    for tensor in tensors:
        left = tensor
        while left.num_bytes > room:
            count = (room - _ALIGNED) // (left.rows.nbytes // len(left.rows))
            assert count > 0 or piece, "a row is longer than a piece"
            if count > 0:
                piece.append(left.cut(0, count))
                left = left.cut(count, len(left.rows))
            yield piece
            piece, room = Piece(), size
        piece.append(left)
        room -= left.num_bytes
    yield piece
