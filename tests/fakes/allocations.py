"""How many bytes of tensors are alive, and how many a GPU would have to give for them, as torch takes them."""

import gc
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from chairlift.runner.memory.torch_memory import Piece, TorchMemory


class Watched(TorchDispatchMode):
    """Takes and frees memory for what operations returned while it was entered."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = TorchMemory()
        self._alive: dict[int, tuple[StorageWeakRef, Piece]] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for key, (storage, piece) in list(self._alive.items()):
            if storage.expired():
                self.memory.free(piece)
                del self._alive[key]
        result = operation(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                if storage.nbytes() and storage._cdata not in self._alive:
                    self._alive[storage._cdata] = (StorageWeakRef(storage), self.memory.take(storage.nbytes()))
        return result


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
