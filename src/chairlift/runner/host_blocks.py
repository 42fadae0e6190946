"""The host memory that blocks are swapped to, as bytes: for what travels between engines.

a piece of n blocks: n rows of the first tensor, n of the second, ...
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chairlift.core.ids import BlockId


class HostBlocks:
    """A `HostMemory`."""

    def __init__(self, tensors: Sequence[NDArray[np.uint8]], layout: str) -> None:
        """tensors: [num_host_blocks, bytes] each."""
        self._tensors = tensors
        self.layout = layout
        self.block_bytes = sum(tensor.shape[1] for tensor in tensors)

    def read(self, blocks: Sequence[BlockId], target: memoryview) -> None:
        places = np.array(blocks, np.int64)
        for tensor, rows in self._cut(np.frombuffer(target, np.uint8), len(blocks)):
            np.take(tensor, places, axis=0, out=rows, mode="clip")  # without the copy that other modes make

    def write(self, blocks: Sequence[BlockId], source: memoryview) -> None:
        places = np.array(blocks, np.int64)
        for tensor, rows in self._cut(np.frombuffer(source, np.uint8), len(blocks)):
            tensor[places] = rows

    def _cut(self, piece: NDArray[np.uint8], count: int) -> list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
        """Each tensor with its rows of the piece."""
        ends = np.cumsum([count * tensor.shape[1] for tensor in self._tensors])
        parts = np.split(piece, ends)[:-1]
        return [(tensor, part.reshape(count, -1)) for tensor, part in zip(self._tensors, parts, strict=True)]
