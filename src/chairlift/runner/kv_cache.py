"""The KV cache: the memory of keys and values, in blocks.

    keys[layer], values[layer]: [num_blocks, kv_heads, block_size, head_dim]; of int8 head_dim + 4: bytes, then a scale
    tokens: [num_blocks, block_size], the ids computed there; written by runners that read them

Always: every value is finite until the model itself writes something else. Knows nothing of requests.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.config.model import ModelConfig
from chairlift.core.plan import BlockCopy
from chairlift.runner.host_blocks import HostBlocks
from chairlift.runner.machine.to_device import to_device

Moves = Sequence[BlockCopy] | NDArray[np.int32]  # (source, target) each
_SCALE_BYTES = 4  # of a head of int8: a float behind its bytes


class Cache(Protocol):
    """What a runner needs of a cache; the rest is between it and its model."""

    block_size: int

    def move_blocks(self, swap_outs: Moves = (), swap_ins: Moves = (), copies: Moves = ()) -> None:
        """To host memory, back from it and on the device, in this order: a block may be vacated and filled in one step.
        Copies happen as if all at once."""


def kv_bytes_per_block(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    heads = (layer.attention for layer in config.layers)
    return 2 * block_size * dtype.itemsize * sum(spec.num_kv_heads * _width(spec.head_dim, dtype) for spec in heads)


def _width(head_dim: int, dtype: torch.dtype) -> int:
    return head_dim + (_SCALE_BYTES if dtype is torch.int8 else 0)


class KvCache:
    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_host_blocks: int = 0,
    ) -> None:
        self.block_size = block_size
        heads = [layer.attention for layer in config.layers]
        shapes = [(num_blocks, spec.num_kv_heads, block_size, _width(spec.head_dim, dtype)) for spec in heads]
        self.keys = [_zeros(shape, dtype, device) for shape in shapes]
        self.values = [_zeros(shape, dtype, device) for shape in shapes]
        self.tokens = _zeros((num_blocks, block_size), torch.int32, device)
        self._memory = (*self.keys, *self.values, self.tokens)
        self._host_memory = [_host_zeros((num_host_blocks, *m.shape[1:]), m.dtype, device) for m in self._memory]
        layout = " ".join(f"{m.dtype}{list(m.shape[1:])}" for m in self._memory)
        self.host = HostBlocks([_blocks(memory) for memory in self._host_memory], layout)

    def move_blocks(self, swap_outs: Moves = (), swap_ins: Moves = (), copies: Moves = ()) -> None:
        self._move(swap_outs, self._memory, self._host_memory)
        self._move(swap_ins, self._host_memory, self._memory)
        self._move(copies, self._memory, self._memory)

    def _move(self, moves: Moves, origins: Sequence[Tensor], copies: Sequence[Tensor]) -> None:
        if not len(moves):
            return
        sources, targets = np.array(moves, dtype=np.int64).T.copy()
        if origins[0].device.type == copies[0].device.type == "cpu":
            for origin, copy in zip(origins, copies, strict=True):
                _blocks(copy)[targets] = _blocks(origin)[sources]
            return
        read, write = to_device(sources, origins[0].device), to_device(targets, copies[0].device)
        for origin, copy in zip(origins, copies, strict=True):
            # As bytes: torch does not index every type that a cache may have.
            copy.view(torch.uint8)[write] = origin.view(torch.uint8)[read].to(copy.device)


def store(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Writes k and v [T, kv_heads, head_dim] of tokens to their slots of a layer."""
    blocks, offsets = slots // keys.shape[2], slots % keys.shape[2]
    keys[blocks, :, offsets] = k
    values[blocks, :, offsets] = v


def _blocks(memory: Tensor) -> NDArray[np.uint8]:
    """[num_blocks, bytes]: numpy copies rows ten times as fast as torch."""
    return memory.view(torch.uint8).flatten(1).numpy()


def _host_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Pinned where the device is a GPU."""
    if device.type == "cuda" and shape[0]:
        return torch.zeros(shape, dtype=dtype, pin_memory=True)
    return _zeros(shape, dtype, torch.device("cpu"))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu" or not shape[0]:
        return torch.zeros(shape, dtype=dtype, device=device)
    # The system hands out the pages of numpy's zeros on first touch: unused blocks cost no memory.
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)
