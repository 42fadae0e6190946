"""An adapter in the host's memory as its file stores it, in the pieces in which it goes to a slot.

    file    | k A | k B | q A | q B | ...            tensors that lie side by side travel as one stretch of bytes
    piece   | records | bytes |                      fits a buffer; a record says which rows the bytes are, and where
                                                     they belong in the slot
    slot    | A of all parts ... | B of all ... |    rounded, with the factor, by `place_kernel` or `unpack`

Always: every number of the slot that no tensor has is 0 before. Knows no device.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.models.adapters.adapter import AdapterSpec
from chairlift.models.spec import ModelConfig
from chairlift.runner.adapters.store import StoredAdapter
from chairlift.runner.cuda.adapters.layout import RANKS, num_blocks, slot_layout
from chairlift.runner.weights.transfer import PIECE

FIELDS = 7  # of a record, as in place_kernel.py
KINDS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)  # as in place_kernel.py
_RECORD = FIELDS * 8  # bytes
_ALIGNED = 16  # bytes
Bytes = NDArray[np.uint8]


class Placed(NamedTuple):
    """Rows of a tensor and their place in a slot."""

    rows: Tensor  # [rows, columns], as stored, contiguous
    first: int  # number of the slot
    step: int  # numbers of the slot from one row to the next
    factor: float = 1.0

    @property
    def start(self) -> int:
        return self.rows.data_ptr()

    @property
    def end(self) -> int:
        return self.start + self.rows.nbytes

    def cut(self, low: int, high: int) -> "Placed":
        return self._replace(rows=self.rows[low:high], first=self.first + low * self.step)


class Piece(NamedTuple):
    records: NDArray[np.int64]  # [N, FIELDS]: first byte of the piece, kind, rows, columns, first, step, factor
    stretches: Sequence[tuple[int, Bytes]]  # of the host's memory, and where they begin in the piece
    num_bytes: int

    def fill(self, buffer: Bytes) -> None:
        """Without the interpreter's lock, but for moments."""
        np.copyto(buffer[: self.records.nbytes], self.records.view(np.uint8).reshape(-1))
        for first, stretch in self.stretches:
            np.copyto(buffer[first : first + len(stretch)], stretch)


@dataclass(frozen=True, slots=True)
class SlotAdapter:
    pieces: Sequence[Piece]
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
    return packed(tensors, blocks, layout.num_units * rank)


def packed(tensors: Sequence[Placed], num_blocks: int, num_numbers: int, size: int = PIECE) -> SlotAdapter:
    """size: of a piece, in bytes; each row fits one."""
    own = {each.rows.untyped_storage().data_ptr(): each.rows.untyped_storage().nbytes() for each in tensors}
    pieces = [_piece(group) for group in _groups(tensors, size)]
    return SlotAdapter(pieces, num_blocks, num_numbers, sum(own.values()))


def _groups(tensors: Sequence[Placed], size: int) -> Iterator[list[Placed]]:
    """Of each piece, as they lie in memory."""
    group, room = list[Placed](), size
    for tensor in sorted(tensors, key=lambda each: each.start):
        left = tensor
        while _most_bytes(left) > room:
            count = (room - _most_bytes(left) + left.rows.nbytes) // (left.rows.nbytes // len(left.rows))
            assert count > 0 or group, "a row is longer than a piece"
            if count > 0:
                group.append(left.cut(0, count))
                left = left.cut(count, len(left.rows))
            yield group
            group, room = [], size
        group.append(left)
        room -= _most_bytes(left)
    yield group


def _most_bytes(tensor: Placed) -> int:
    """That it takes of a piece, wherever it begins."""
    return _RECORD + 2 * _ALIGNED + tensor.rows.nbytes


def _piece(group: Sequence[Placed]) -> Piece:
    records = np.zeros((len(group), FIELDS), np.int64)
    stretches, place, end = list[list[int]](), records.nbytes, 0
    for record, each in zip(records, group, strict=True):
        if not stretches or each.start != end:
            place = -(-place // _ALIGNED) * _ALIGNED + each.start % _ALIGNED  # whole numbers stay aligned
            stretches.append([place, each.start, each.start])
        factor = int(np.float32(each.factor).view(np.int32))
        record[:] = (place, KINDS.index(each.rows.dtype), *each.rows.shape, each.first, each.step, factor)
        place, end = place + each.rows.nbytes, each.end
        stretches[-1][2] = end
    memory = {each.start: each.rows.untyped_storage() for each in group}
    return Piece(records, [(first, _bytes(memory[low], low, high)) for first, low, high in stretches], place)


def _bytes(storage: torch.UntypedStorage, low: int, high: int) -> Bytes:
    """Between two addresses."""
    whole = torch.empty(0, dtype=torch.uint8).set_(storage)
    start = storage.data_ptr()
    found: Bytes = whole[low - start : high - start].numpy()
    return found


def unpack(piece: Tensor, num_records: int, slot: Tensor) -> None:
    """What `place_kernel` does, by torch. piece: bytes."""
    records = piece[: num_records * _RECORD].view(torch.int64).view(num_records, FIELDS)
    for start, kind, height, width, first, step, bits in records.tolist():
        dtype, factor = KINDS[kind], float(np.int32(bits).view(np.float32))
        numbers = piece[start : start + height * width * dtype.itemsize].clone().view(dtype).view(height, width)
        target = slot.as_strided((height, width), (step, 1), slot.storage_offset() + first)
        target.copy_(numbers.float() * factor)
