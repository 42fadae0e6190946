"""The memory of keys and values, in blocks; which request owns which block is the core's business.

    keys[layer], values[layer]: [num_blocks, kv_heads, block_size, head_dim]

Always: every value is finite until the model itself writes something else. Knows nothing of requests or tokens.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from chairlift.config.model import ModelConfig
from chairlift.core.plan import BlockCopy


def kv_bytes_per_block(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    return 2 * config.num_layers * config.num_kv_heads * block_size * config.head_dim * dtype.itemsize


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
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (num_blocks, config.num_kv_heads, block_size, config.head_dim)
        self.keys = [_zeros(shape, dtype, device) for _ in range(config.num_layers)]
        self.values = [_zeros(shape, dtype, device) for _ in range(config.num_layers)]
        outside = (num_host_blocks, *shape[1:])
        self._host = [_host_zeros(outside, dtype, device) for _ in range(2 * config.num_layers)]

    def swap_out(self, moves: Sequence[BlockCopy]) -> None:
        """Moves blocks to host memory."""
        if moves:
            sources, targets = _columns(moves)
            for memory, host in zip((*self.keys, *self.values), self._host, strict=True):
                host[targets] = memory[sources.to(memory.device)].to(host.device)

    def swap_in(self, moves: Sequence[BlockCopy]) -> None:
        """Moves blocks back from host memory."""
        if moves:
            sources, targets = _columns(moves)
            for memory, host in zip((*self.keys, *self.values), self._host, strict=True):
                memory[targets.to(memory.device)] = host[sources].to(memory.device)

    def copy(self, copies: Sequence[BlockCopy]) -> None:
        """Copies whole blocks, all of them as if at once."""
        if not copies:
            return
        sources, targets = (column.to(self.keys[0].device) for column in _columns(copies))
        for memory in (*self.keys, *self.values):
            memory[targets] = memory[sources]


def _columns(moves: Sequence[BlockCopy]) -> tuple[Tensor, Tensor]:
    sources, targets = torch.tensor(moves, dtype=torch.int64).unbind(1)
    return sources, targets


def _host_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """On a machine with a GPU, memory that it can read and write by itself."""
    if shape[0] == 0:
        return torch.empty(shape, dtype=dtype)
    if device.type == "cuda":
        return torch.zeros(shape, dtype=dtype, pin_memory=True)
    return _zeros(shape, dtype, torch.device("cpu"))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy's zeros are pages the system hands out on first touch, so blocks that are never used cost no memory.
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)
