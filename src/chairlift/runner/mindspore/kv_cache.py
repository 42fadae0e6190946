"""The KV cache in MindSpore's memory, and the host's memory that its blocks are swapped to.

A layer's keys and values are parameters, which operations may write to; a block is some rows of each, in order.
Always: every value is finite until the model itself writes something else. Knows nothing of requests.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, ops
from numpy.typing import DTypeLike, NDArray

from chairlift.core.memory.pages import Kind
from chairlift.models.kv_groups import WHOLE
from chairlift.runner.kv_cache import Moves
from chairlift.runner.mindspore.weight import put

_update = ops.ScatterUpdate()


class MindSporeCache:
    def __init__(
        self, shapes: Sequence[tuple[int, ...]], num_blocks: int, block_size: int, dtype: DTypeLike,
        num_host_blocks: int = 0,
    ) -> None:  # fmt: skip
        """shapes: of each layer's keys, and of its values."""
        self.block_size = block_size
        self.kinds: Sequence[Kind] = ()  # every layer keeps all tokens
        self.fit = WHOLE
        self.num_groups: Sequence[int] = ()
        self.keys = [_zeros(shape, dtype) for shape in shapes]
        self.values = [_zeros(shape, dtype) for shape in shapes]
        sizes = [shape[0] // num_blocks for shape in shapes] * 2  # rows of a block
        self._memory = [
            (memory, np.zeros((size * num_host_blocks, *memory.shape[1:]), dtype), size)
            for memory, size in zip((*self.keys, *self.values), sizes, strict=True)
        ]

    def move_blocks(self, swap_outs: Moves = (), swap_ins: Moves = (), copies: Moves = ()) -> None:
        for memory, host, size in self._memory:
            if len(swap_outs):
                sources, targets = _rows(swap_outs, size)
                host[targets] = ops.gather(memory, put(sources), 0).asnumpy()
            if len(swap_ins):
                sources, targets = _rows(swap_ins, size)
                _update(memory, put(targets), put(host[sources]))
            if len(copies):
                sources, targets = _rows(copies, size)
                _update(memory, put(targets), ops.gather(memory, put(sources), 0))


def _rows(moves: Moves, size: int) -> NDArray[np.int32]:
    """[2, rows]: of the sources and of the targets"""
    blocks = np.array(moves, np.int32).T[:, :, None]
    return (blocks * size + np.arange(size)).astype(np.int32).reshape(2, -1)


def _zeros(shape: tuple[int, ...], dtype: DTypeLike) -> Any:
    return Parameter(put(np.zeros(shape, dtype)), requires_grad=False)
