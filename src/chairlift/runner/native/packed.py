"""Matrices in the layout that the kernels read, in large pages where the system has them.

    Arena: | matrix | matrix | ... |   mapped memory of 64 MiB or more; freed with its last matrix

Always: a matrix is whole in one mapping, at a multiple of 64 bytes; its rows can be read back exactly.
"""

import mmap
from ctypes import CDLL

import torch
from torch import Tensor

from chairlift.runner.native.tape import Calls

_MAPPING_BYTES = 64 << 20
_LARGE_PAGE = 2 << 20
_PANEL = _STEP = 32  # as in linear.c and product.c, where a panel's depth is not padded


class Arena:
    """Allocates memory for matrices, in mappings of at least so many bytes. Large pages make reading a fifth faster."""

    def __init__(self, mapping_bytes: int = _MAPPING_BYTES) -> None:
        self._mapping_bytes = mapping_bytes
        self._mapping = torch.empty(0, dtype=torch.bfloat16)
        self._used = 0

    def take(self, num_items: int) -> Tensor:
        """Memory for so many numbers of two bytes."""
        if self._used + num_items > len(self._mapping):
            self._mapping = _map(max(self._mapping_bytes, 2 * num_items))
            self._used = 0
        taken = self._mapping[self._used : self._used + num_items]
        self._used += num_items
        return taken


def _map(num_bytes: int) -> Tensor:
    memory = mmap.mmap(-1, -(-num_bytes // _LARGE_PAGE) * _LARGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.bfloat16)


def pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


class PackedWeight:
    def __init__(self, library: CDLL, calls: Calls, arena: Arena, matrix: Tensor, bias: Tensor | None) -> None:
        matrix = matrix.contiguous()
        self._out, self._in = matrix.shape
        self._dtype, self._is_bf16 = matrix.dtype, matrix.dtype is torch.bfloat16
        num_items = -(-self._out // _PANEL) * _PANEL * -(-self._in // _STEP) * _STEP
        self._packed = arena.take(num_items * matrix.itemsize // 2)
        self._pointer = self._packed.data_ptr()
        self._bias = None if bias is None else bias.to(matrix.dtype).contiguous()
        self._bias_pointer = pointer(self._bias)
        self._empty, self._product, self._rows = calls.empty, calls.product, calls.product_rows
        library.chairlift_product_pack(matrix.data_ptr(), self._pointer, self._out, self._in, self._is_bf16)

    @property
    def parts(self) -> list[tuple[int, ...]]:
        """As experts.py lists them."""
        return [(-1, self._pointer, self._out, self._bias_pointer or 0)]

    def linear(self, x: Tensor) -> Tensor:
        return self._multiply(x, self._dtype)

    def logits(self, x: Tensor) -> Tensor:
        return self._multiply(x, torch.float32)

    def _multiply(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        num_rows = x.size(0)
        if not x.is_contiguous():
            x = x.contiguous()
        out = self._empty((num_rows, self._out), dtype)
        self._product(
            x.data_ptr(), self._pointer, self._bias_pointer, out.data_ptr(),
            num_rows, self._out, self._in, self._is_bf16, dtype is torch.float32,
        )  # fmt: skip
        return out

    def rows(self, ids: Tensor) -> Tensor:
        out = self._empty((len(ids), self._in), self._dtype)
        self._rows(self._pointer, ids.data_ptr(), out.data_ptr(), len(ids), self._in, self._is_bf16)
        return out
