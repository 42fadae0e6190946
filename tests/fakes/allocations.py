"""How many bytes of tensors are alive, and how many a GPU would have to give for them, as torch takes them."""

import gc
from itertools import pairwise
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_MIB = 2**20


class Watched(TorchDispatchMode):
    """Has an allocator of its own make and free what operations returned while it was entered."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = Allocator()
        self._alive: dict[int, tuple[StorageWeakRef, Piece]] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for key, (storage, piece) in list(self._alive.items()):
            if storage.expired():
                self.allocator.free(piece)
                del self._alive[key]
        result = operation(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                if storage.nbytes() and storage._cdata not in self._alive:
                    self._alive[storage._cdata] = (StorageWeakRef(storage), self.allocator.take(storage.nbytes()))
        return result


class Piece:
    """Of what was taken from the device at once: neighbours lie beside each other in a list that they share."""

    def __init__(self, size: int, segment: "list[Piece]") -> None:
        self.size = size
        self.segment = segment
        self.is_free = True


class Allocator:
    """By the rules of torch's for CUDA: the smallest free piece that is large enough, cut; else more of the device."""

    def __init__(self) -> None:
        self.taken = 0  # of the device
        self._segments: dict[bool, list[list[Piece]]] = {True: [], False: []}

    def take(self, num_bytes: int) -> Piece:
        size = _up(num_bytes, 512)
        is_small = size <= _MIB
        free = [p for segment in self._segments[is_small] for p in segment if p.is_free and p.size >= size]
        piece = min(free, key=lambda p: p.size) if free else self._more(size, is_small)
        rest = piece.size - size
        if rest > (511 if is_small else _MIB):
            behind = Piece(rest, piece.segment)
            piece.segment.insert(piece.segment.index(piece) + 1, behind)
            piece.size = size
        piece.is_free = False
        return piece

    def free(self, piece: Piece) -> None:
        piece.is_free = True
        segment = piece.segment
        for left, right in reversed([*pairwise(segment)]):
            if left.is_free and right.is_free:
                left.size += right.size
                segment.remove(right)

    def _more(self, size: int, is_small: bool) -> Piece:
        size = 2 * _MIB if is_small else 20 * _MIB if size < 10 * _MIB else _up(size, 2 * _MIB)
        segment: list[Piece] = []
        segment.append(Piece(size, segment))
        self._segments[is_small].append(segment)
        self.taken += size
        return segment[0]


def held() -> int:
    """Bytes of all tensors that Python holds now, each memory once; of one that is cut into pieces, its pieces."""
    gc.collect()
    pieces: dict[int, dict[tuple[int, int], None]] = {}
    for tensor in [each for each in gc.get_objects() if issubclass(type(each), Tensor) and not each.is_mkldnn]:
        storage = tensor.untyped_storage()
        of_this = pieces.setdefault(storage.data_ptr(), {(storage.data_ptr(), storage.nbytes()): None})
        of_this[tensor.data_ptr(), tensor.numel() * tensor.itemsize] = None
    return sum(_sum(list(extents)) for extents in pieces.values())


def _sum(extents: list[tuple[int, int]]) -> int:
    whole, *parts = extents
    smaller = [size for start, size in parts if size < whole[1]]
    return sum(smaller) or whole[1]


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
