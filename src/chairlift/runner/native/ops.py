"""`NativeOps`: the model's operations by the compiled kernels, for bf16 and float32.

Always: each row of a result is computed from its own inputs in a fixed order, so its bits depend neither on the other
rows of the batch nor on the number of threads. Tensors are on the CPU.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from chairlift.config.model import ACTIVATIONS, AttentionSpec
from chairlift.runner.native.library import SPIN_NS, load
from chairlift.runner.native.packed import Arena, PackedWeight, pointer
from chairlift.runner.native.quantised import BLOCK_TYPES, from_blocks, rounded
from chairlift.runner.native.tape import Calls
from chairlift.runner.ops import Attention, Batch, Weight
from chairlift.runner.sampling.table import Samples
from chairlift.runner.weights.blocks import Blocks

DTYPES = (torch.bfloat16, torch.float32)
MAX_HEAD_DIM = 512  # as in vector.c
_ACTIVATIONS = {name: number for number, name in enumerate(ACTIVATIONS)}  # as in vector.c


def available() -> bool:
    return load() is not None


class NativeOps:
    def __init__(self, threads: int) -> None:
        library = load()
        assert library is not None, "ask available() first"
        library.chairlift_set_threads(threads, SPIN_NS)
        self._library = library
        self._arena = Arena()
        self.calls = Calls(library)
        # Looked up once: a step makes some 270 calls.
        self._norm, self._activate = self.calls.norm, self.calls.activate
        self._rotate, self._attention = self.calls.rotate, self.calls.attention

    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        return PackedWeight(self._library, self.calls, self._arena, matrix, bias)

    def apart(self) -> "NativeOps":
        """The same, with memory of their own for the weights that they make."""
        ops = copy.copy(self)
        ops._arena = Arena(mapping_bytes=1)
        return ops

    @property
    def block_types(self) -> frozenset[int]:
        return BLOCK_TYPES

    def blocks_weight(self, parts: Sequence[Blocks], bias: Tensor | None, dtype: torch.dtype) -> Weight:
        return from_blocks(self._library, self.calls, self._arena, parts, bias, dtype)

    def rounded_weight(self, kind: int, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        """As `weight`, rounded to blocks of this type."""
        return rounded(self._library, self.calls, self._arena, kind, matrix, bias)

    def rms_norm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        out = self.calls.empty(x.shape, x.dtype)
        self._norm_into(x, None, gain, out, eps, 1.0)
        return out

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, gain: Tensor | None, eps: float, factor: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        self._norm_into(x, residual.data_ptr(), gain, x, eps, factor)
        return residual if gain is None else x, residual

    def _norm_into(
        self, x: Tensor, residual: int | None, gain: Tensor | None, out: Tensor, eps: float, factor: float
    ) -> None:
        width = x.shape[-1]
        self._norm(
            x.data_ptr(), residual, pointer(gain), out.data_ptr(),
            x.numel() // width, width, eps, factor, x.dtype is torch.bfloat16,
        )  # fmt: skip

    def attend(self, qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        q = self.rotate_and_store(qkv, attention, keys, values, batch)
        return self.attention(q, attention.spec, keys, values, batch)

    def rotate_and_store(
        self, qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch
    ) -> Tensor:  # fmt: skip
        """Writes keys and values to the cache. -> queries [T, heads, head_dim]"""
        _, kv_heads, block_size, _ = keys.shape
        heads, head_dim = attention.spec.num_heads, attention.spec.head_dim
        assert head_dim <= MAX_HEAD_DIM
        num_rows = qkv.size(0)
        q = self.calls.empty((num_rows, heads, head_dim), qkv.dtype)
        self._rotate(
            qkv.data_ptr(), attention.rotation.data_ptr(), batch.positions.data_ptr(), batch.slots.data_ptr(),
            q.data_ptr(), keys.data_ptr(), values.data_ptr(),
            pointer(attention.q_norm), pointer(attention.k_norm),
            num_rows, heads, kv_heads, head_dim, block_size, attention.eps, qkv.dtype is torch.bfloat16,
            keys.dtype is torch.int8,
        )  # fmt: skip
        return q

    def attention(self, q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """Causal attention of each chunk over its own context. -> [T, heads * head_dim]"""
        _, kv_heads, block_size, _ = keys.shape
        num_rows, heads, head_dim = q.shape
        out = self.calls.empty((num_rows, heads * head_dim), q.dtype)
        tables = batch.tables
        self._attention(
            q.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(),
            batch.starts.data_ptr(), batch.contexts.data_ptr(), tables.data_ptr(), tables.stride(0), tables.size(0),
            heads, kv_heads, head_dim, block_size, spec.scale, spec.cap, spec.window, q.dtype is torch.bfloat16,
            keys.dtype is torch.int8,
        )  # fmt: skip
        return out

    def gated(self, weight: Weight, x: Tensor, activation: str) -> Tensor:
        return self.activate(weight.linear(x), activation)

    def activate(self, gate_up: Tensor, activation: str) -> Tensor:
        num_rows, width = gate_up.shape
        out = self.calls.empty((num_rows, width // 2), gate_up.dtype)
        self._activate(
            gate_up.data_ptr(), out.data_ptr(), num_rows, width // 2, _ACTIVATIONS[activation],
            gate_up.dtype is torch.bfloat16,
        )  # fmt: skip
        return out

    def cap(self, logits: Tensor, cap: float) -> Tensor:
        logits = logits.contiguous()
        self._library.chairlift_cap(logits.data_ptr(), len(logits), logits.shape[1], cap)
        return logits

    def argmax(self, logits: Tensor) -> Tensor:
        logits = logits.contiguous()
        out = torch.empty(len(logits), dtype=torch.int64)
        self._library.chairlift_argmax(logits.data_ptr(), out.data_ptr(), len(logits), logits.shape[1])
        return out

    def draw(self, logits: Tensor, samples: Samples) -> list[int]:
        logits, samples = logits.contiguous(), np.ascontiguousarray(samples)
        out = np.empty(len(samples), np.int64)
        self._library.chairlift_draw(
            logits.data_ptr(), logits.shape[1], len(out), samples.ctypes.data, samples.itemsize, out.ctypes.data
        )
        tokens: list[int] = out.tolist()
        return tokens
