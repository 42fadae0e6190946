"""How many bytes of tensors are alive, and were at the most: watched operation by operation, wherever they lie."""

import gc
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Watched(TorchDispatchMode):
    """Of tensors that operations returned while it was entered."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return result


def held() -> int:
    """Bytes of all tensors that Python holds now, each memory once; of one that is cut into pieces, its pieces."""
    gc.collect()
    pieces: dict[int, dict[tuple[int, int], None]] = {}
    for tensor in [each for each in gc.get_objects() if issubclass(type(each), Tensor)]:
        storage = tensor.untyped_storage()
        of_this = pieces.setdefault(storage.data_ptr(), {(storage.data_ptr(), storage.nbytes()): None})
        of_this[tensor.data_ptr(), tensor.numel() * tensor.itemsize] = None
    return sum(_sum(list(extents)) for extents in pieces.values())


def _sum(extents: list[tuple[int, int]]) -> int:
    whole, *parts = extents
    smaller = [size for start, size in parts if size < whole[1]]
    return sum(smaller) or whole[1]
