"""Matrix products in which a row's bits do not depend on the number of rows: for `--exact`.

Our own product adds up the inputs of an output in one fixed order, whatever its tile: tensor cores take sixteen at a
time, from first to last. A library's product is faster for many rows and often adds up in the same order, but does not
promise it; the one for Hopper is faster for few. So they are tried on random numbers against ours, for each kind of
matrix and each number of rows, and used only where all bits are equal.

Always: all products of a kind of matrix give the same bits. Library products run with row counts that have been tried;
rows of zeros are added up to the next one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.dependent_launch import dependent
from chairlift.runner.cuda.hopper import Hopper
from chairlift.runner.cuda.products.exact_kernels import product_kernel
from chairlift.runner.cuda.target import stages_ahead

Activate = Callable[[Tensor, str], Tensor]  # as `CudaOps.activate`
Multiply = Callable[[Tensor, Tensor, torch.dtype], Tensor]  # x [T, in], matrix [out, in], of the result -> [T, out]
Gate = Callable[[Tensor, Tensor, str], Tensor]  # as `gated`

_FEW = 16  # rows up to which ours is the fastest
_TRIED = 1 << 18  # numbers that must be equal, of a matrix that has enough of them
_MAX_TRIALS = 64


@dataclass(frozen=True, slots=True)
class ProductTrials:
    """What trials have shown, by shape, numbers and place of a matrix and more."""

    products: dict[tuple[object, ...], Multiply] = field(default_factory=dict)
    gates: dict[tuple[object, ...], Gate | None] = field(default_factory=dict)  # None: there is none
    hopper: Hopper = field(default_factory=Hopper)


class Tile(NamedTuple):
    outputs: int
    num_full: int  # of them; the other lines are empty
    rows: int
    stretch: int  # of the sum that is read at a time
    warps: int
    stages: int  # that are read ahead, where there is memory for them

    def num_stages(self, itemsize: int) -> int:
        return stages_ahead(self.stages, (self.outputs + self.rows) * self.stretch * itemsize)


# Chosen by measuring on an H200. Many outputs keep all processors busy with tiles that are nearly full.
_FEW_ROWS = Tile(64, 32, 16, 256, 4, 5)
_FEW_ROWS_OF_MANY = Tile(128, 96, 16, 128, 4, 4)
_MANY_OUTPUTS = 8192
_GATED = Tile(64, 64, 16, 128, 4, 3)
_MEDIUM = Tile(64, 64, 64, 128, 4, 4)
_LARGE = Tile(128, 128, 256, 64, 8, 4)
_UNCUT = Tile(64, 64, 16, 32, 4, 2)  # for float32, which the tensor cores do not take as it is


class ExactWeight:
    """`trials` is shared by the matrices of a model, as those of one shape need one trial."""

    def __init__(self, matrix: Tensor, bias: Tensor | None, trials: ProductTrials) -> None:
        self._matrix = matrix.contiguous()
        self._bias = bias
        self._trials = trials

    def linear(self, x: Tensor) -> Tensor:
        return self._multiply(x, x.dtype)

    def gated(self, x: Tensor, activation: str, activate: Activate) -> Tensor:
        """activate(linear(x), activation); of a few rows in one kernel, where that gives the same bits."""
        if self._bias is not None or len(x) > _FEW or x.dtype is torch.float32:
            return activate(self.linear(x), activation)
        kind = (self._matrix.shape, self._matrix.dtype, activation)
        if kind not in self._trials.gates:
            self._trials.gates[kind] = self._find_gate(activation, activate)
        gate = self._trials.gates[kind]
        return activate(self.linear(x), activation) if gate is None else gate(x, self._matrix, activation)

    def _find_gate(self, activation: str, activate: Activate) -> Gate | None:
        x = _numbers(0, _FEW, self._matrix)
        gates: list[Gate] = [gated]
        if (few_rows := self._trials.hopper.few_rows) and few_rows.takes(x, self._matrix):
            multiply = few_rows.multiply
            gates.insert(0, lambda x, matrix, name: multiply(x, matrix, None, x.dtype, name))
        if not self._matrix.is_cuda:  # nothing is computed
            return gates[0]
        wanted = [(rows, activate(self.linear(rows), activation)) for rows in (x, x[: _FEW // 2], x[:1])]
        return next(
            (
                gate for gate in gates
                if all(torch.equal(gate(rows, self._matrix, activation), want) for rows, want in wanted)
            ),
            None,
        )  # fmt: skip

    def logits(self, x: Tensor) -> Tensor:
        return self._multiply(x, torch.float32)

    def rows(self, ids: Tensor) -> Tensor:
        return torch.nn.functional.embedding(ids, self._matrix)

    def _multiply(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        num_rows, count = len(x), padded(len(x))
        if not num_rows:  # a step without samples
            return torch.empty(0, len(self._matrix), dtype=dtype, device=x.device)
        kind = (self._matrix.shape, self._matrix.dtype, self._matrix.device.type, dtype, count)
        if (multiply := self._trials.products.get(kind)) is None:
            multiply = self._trials.products[kind] = find(self._matrix, dtype, count, self._trials.hopper)
        if count > num_rows:
            x = torch.nn.functional.pad(x, (0, 0, 0, count - num_rows))
        out = multiply(x.contiguous(), self._matrix, dtype)[:num_rows]
        return out if self._bias is None else out.add_(self._bias)


def padded(num_rows: int) -> int:
    """A number of rows that is tried: not too many are, all rungs of captured steps among them."""
    if num_rows <= _FEW or num_rows % 1024 == 0:
        return num_rows
    step, fewer = (8, 0) if num_rows <= 512 else (64, 8)
    return -(-(num_rows + fewer) // step) * step - fewer


def find(matrix: Tensor, dtype: torch.dtype, num_rows: int, hopper: Hopper) -> Multiply:
    """The fastest product that gives the bits of our own product with its smallest tile."""
    candidates: list[Multiply] = [partial(product, tile=_tile(num_rows, matrix))]
    few_rows = hopper.few_rows
    if num_rows <= _FEW and few_rows and few_rows.takes(matrix[:num_rows], matrix):
        multiply = few_rows.multiply
        candidates.insert(0, lambda x, matrix, dtype: multiply(x, matrix, None, dtype, is_cut=False))
    if not matrix.is_cuda:  # there is no library to try
        return candidates[0]
    if num_rows > _FEW:
        candidates.insert(0, by_library)
    return first_equal(candidates, matrix, dtype, num_rows)


def first_equal(candidates: Sequence[Multiply], matrix: Tensor, dtype: torch.dtype, num_rows: int) -> Multiply:
    smallest = partial(product, tile=_UNCUT if matrix.dtype is torch.float32 else _FEW_ROWS)
    num_trials = min(_MAX_TRIALS, -(-_TRIED // (num_rows * len(matrix))))
    samples = [_numbers(trial, num_rows, matrix) for trial in range(num_trials)]
    wanted = [smallest(x, matrix, dtype) for x in samples]
    for multiply in candidates:
        if all(torch.equal(multiply(x, matrix, dtype), want) for x, want in zip(samples, wanted, strict=True)):
            return multiply
    return smallest


def _numbers(seed: int, num_rows: int, matrix: Tensor) -> Tensor:
    source = torch.Generator(matrix.device).manual_seed(seed)
    return torch.randn(num_rows, matrix.shape[1], generator=source, device=matrix.device).to(matrix.dtype)


def _tile(num_rows: int, matrix: Tensor) -> Tile:
    if matrix.dtype is torch.float32:
        return _UNCUT
    if num_rows > _FEW:
        return _MEDIUM if num_rows <= 64 else _LARGE
    return _FEW_ROWS_OF_MANY if len(matrix) >= _MANY_OUTPUTS else _FEW_ROWS


def by_library(x: Tensor, matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """cuBLASLt: unlike cuBLAS it can be told not to cut sums into parts, and is as fast."""
    with _uncut():
        return torch.mm(x, matrix.t()) if dtype is x.dtype else torch.mm(x, matrix.t(), out_dtype=dtype)


@contextmanager
def _uncut() -> Iterator[None]:
    settings, backends = torch.backends.cuda.matmul, torch.backends.cuda
    library = backends.preferred_blas_library()
    bf16, fp16 = settings.allow_bf16_reduced_precision_reduction, settings.allow_fp16_reduced_precision_reduction
    backends.preferred_blas_library("cublaslt")
    settings.allow_bf16_reduced_precision_reduction = settings.allow_fp16_reduced_precision_reduction = (False, False)
    try:
        yield
    finally:
        settings.allow_bf16_reduced_precision_reduction = bf16
        settings.allow_fp16_reduced_precision_reduction = fp16
        backends.preferred_blas_library(library)


def gated(x: Tensor, matrix: Tensor, activation: str) -> Tensor:
    return product(x, matrix, x.dtype, _GATED, activation)


def product(x: Tensor, matrix: Tensor, dtype: torch.dtype, tile: Tile, activation: str = "") -> Tensor:
    """x [T, in], matrix [out, in] -> [T, out]; with an activation: matrix [2 * out, in] -> activation(first half of the
    product) * second half"""
    (num_rows, width), num_outputs = x.shape, len(matrix) // (2 if activation else 1)
    out = torch.empty(num_rows, num_outputs, dtype=dtype, device=x.device)
    num_full = tile.outputs // 2 if activation else tile.num_full
    is_full = tile.num_full == tile.outputs and num_outputs % num_full == 0
    grid = (triton.cdiv(num_rows, tile.rows) * triton.cdiv(num_outputs, num_full),)
    product_kernel[grid](
        x, matrix, out, num_rows, num_outputs, width,
        OUTPUTS=tile.outputs, NUM_FULL=num_full, ROWS=tile.rows, STRETCH=tile.stretch, IS_FULL=is_full,
        IS_EVEN=width % tile.stretch == 0, ACTIVATION=activation, num_warps=tile.warps,
        num_stages=tile.num_stages(x.element_size()), **dependent(num_rows == 1),
    )  # fmt: skip
    return out
