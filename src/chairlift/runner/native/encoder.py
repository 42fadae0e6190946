"""An encoder's operations by the compiled kernels, for bf16 and float32.

Always: with `exact` a row's bits depend on its own input alone, as those of `NativeOps` do; activations that they
do not have are torch's, and then it does not hold. Keys and values of a layer are laid in blocks, as the kernels of
decoders want them.
"""

import torch
from torch import Tensor

from chairlift.runner.embedding.inputs import BLOCK, Rows
from chairlift.runner.embedding.ops import EncoderAttention, TorchEncoderOps
from chairlift.runner.native.library import load
from chairlift.runner.native.ops import NATIVE_ACTIVATIONS, NativeOps
from chairlift.runner.native.packed import pointer
from chairlift.runner.ops import Norm, Weight


class NativeEncoderOps:
    def __init__(self, threads: int, exact: bool = False) -> None:
        """exact: all products are by our kernels; others leave those of float32 to torch's library, which is faster on
        many rows."""
        self._ops = NativeOps(threads)
        self._exact = exact
        self._others = TorchEncoderOps()
        library = load()
        assert library is not None
        self._library = library

    @property
    def is_exact(self) -> bool:
        return self._exact

    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        if matrix.dtype is torch.float32 and not self._exact:
            return self._others.weight(matrix, bias)
        return self._ops.weight(matrix, bias)

    def add_norm(self, x: Tensor, residual: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
        out = torch.empty_like(x)
        width = x.shape[1]
        self._library.chairlift_norm(
            x.data_ptr(), pointer(residual), norm.gain.data_ptr(), pointer(norm.bias), out.data_ptr(),
            len(x), width, width, norm.eps, 1.0, norm.is_centred, x.dtype is torch.bfloat16,
        )  # fmt: skip
        return out, x if residual is None else residual

    def activate(self, x: Tensor, activation: str, is_gated: bool) -> Tensor:
        if activation not in NATIVE_ACTIVATIONS:
            return self._others.activate(x, activation, is_gated)
        return self._ops.activate(x, activation, is_gated)

    def attend(self, qkv: Tensor, attention: EncoderAttention, rows: Rows) -> Tensor:
        count, slots, tables, lengths = rows.blocks
        spec, num_rows, is_bf16 = attention.spec, len(qkv), qkv.dtype is torch.bfloat16
        heads, dim = spec.num_heads, spec.head_dim
        q, out = (torch.empty((num_rows, heads * dim), dtype=qkv.dtype) for _ in range(2))
        keys, values = (torch.empty((count, heads, BLOCK, dim), dtype=qkv.dtype) for _ in range(2))
        self._library.chairlift_rotate(
            qkv.data_ptr(), attention.rotation.data_ptr(), rows.positions.data_ptr(), slots.data_ptr(),
            q.data_ptr(), keys.data_ptr(), values.data_ptr(), None, None, None,
            num_rows, heads, 0, heads, dim, BLOCK, 0.0, is_bf16, False,
        )  # fmt: skip
        self._library.chairlift_encoder_attention(
            q.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(),
            rows.starts.data_ptr(), lengths.data_ptr(), tables.data_ptr(), tables.stride(0), len(lengths),
            heads, dim, BLOCK, spec.scale, attention.reach, is_bf16,
        )  # fmt: skip
        return out
