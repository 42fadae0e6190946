"""The memory that torch takes of a GPU for tensors that come and go, by the rules of its allocator.

Always: a tensor gets the smallest free piece that is large enough, cut to size; without one, more of the device. Free
neighbours are joined, but never pieces that the device gave apart. Small tensors have memory of their own.
"""

from itertools import pairwise

MIB = 2**20
PIECE = 2 * MIB  # that the device gives at least
_MIDDLE, _FOR_MIDDLE = 10 * MIB, 20 * MIB  # tensors below share pieces
_SMALL = MIB
_ROUNDED, _FOR_SMALL = 512, 2 * MIB


class Piece:
    """Of what was taken from the device at once: neighbours lie beside each other in a list that they share."""

    def __init__(self, size: int, segment: "list[Piece]") -> None:
        self.size = size
        self.segment = segment
        self.is_free = True


class TorchMemory:
    def __init__(self) -> None:
        self.taken = 0  # bytes of the device
        self._segments: dict[bool, list[list[Piece]]] = {True: [], False: []}

    def take(self, num_bytes: int) -> Piece:
        size = rounded(num_bytes, _ROUNDED)
        is_small = size <= _SMALL
        free = [p for segment in self._segments[is_small] for p in segment if p.is_free and p.size >= size]
        piece = min(free, key=lambda p: p.size) if free else self._more(size, is_small)
        rest = piece.size - size
        if rest >= _ROUNDED if is_small else rest > _SMALL:
            behind = Piece(rest, piece.segment)
            piece.segment.insert(piece.segment.index(piece) + 1, behind)
            piece.size = size
        piece.is_free = False
        return piece

    def free(self, *pieces: Piece) -> None:
        for piece in pieces:
            piece.is_free = True
            for left, right in reversed([*pairwise(piece.segment)]):
                if left.is_free and right.is_free:
                    left.size += right.size
                    piece.segment.remove(right)

    def _more(self, size: int, is_small: bool) -> Piece:
        size = _FOR_SMALL if is_small else _FOR_MIDDLE if size < _MIDDLE else rounded(size)
        segment: list[Piece] = []
        segment.append(Piece(size, segment))
        self._segments[is_small].append(segment)
        self.taken += size
        return segment[0]


def rounded(num_bytes: int, step: int = PIECE) -> int:
    """Up."""
    return -(-num_bytes // step) * step
