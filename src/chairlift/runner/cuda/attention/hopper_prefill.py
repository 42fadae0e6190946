"""Launches the attention of long prompt chunks, where the GPU is Hopper."""

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.cuda.attention.hopper_prefill_kernel import hopper_prompt_kernel
from chairlift.runner.cuda.gluon import LINE, lines

_TILE = 64  # keys at a time
_STAGES = 3  # tiles that are on their way
_DTYPES = (torch.bfloat16, torch.float16)
_DIMS = (64, 128)


class HopperPrompts:
    def __init__(self) -> None:
        self._caches: dict[int, TensorDescriptor] = {}

    @staticmethod
    def takes(q: Tensor, spec: AttentionSpec, keys: Tensor) -> bool:
        """Not where each head has its own keys: two heads share a program's."""
        block_size = keys.shape[2]
        return (
            q.dtype is keys.dtype in _DTYPES
            and spec.has_groups
            and spec.cap == 0
            and not spec.has_sinks
            and spec.head_dim in _DIMS
            and block_size % 8 == 0
            and _TILE % block_size == 0
        )

    def attend(
        self, q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, tables: Tensor, tiles: Tensor, out: Tensor
    ) -> None:
        """q [T, heads, head_dim], out [T, heads * head_dim]; tiles: of `CudaBatch`"""
        _, kv_heads, block_size, head_dim = keys.shape
        pairs = -(-spec.num_heads // kv_heads // 2)
        hopper_prompt_kernel[(kv_heads * pairs, len(tiles))](
            q, self._descriptor(keys), self._descriptor(values), tables, tiles, out, spec.scale, spec.window,
            tables.shape[1], keys.numel() // head_dim,
            HEADS=spec.num_heads, KV_HEADS=kv_heads, DIM=head_dim, SIZE=block_size, TILE=_TILE, STAGES=_STAGES,
            num_warps=4,
        )  # fmt: skip

    def _descriptor(self, cache: Tensor) -> TensorDescriptor:
        key = cache.data_ptr()
        if key not in self._caches:
            _, _, block_size, head_dim = cache.shape
            shape, strides = [cache.numel() // head_dim, head_dim], [head_dim, 1]
            self._caches[key] = TensorDescriptor(cache, shape, strides, [block_size, LINE.value], lines())
        return self._caches[key]
