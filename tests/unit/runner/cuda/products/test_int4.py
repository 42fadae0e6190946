"""Tiles of 4 bits, in Triton's interpreter. What the kernel for Hopper computes: tests/gpu/test_int4.py."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.products import int4_weight as weight_module
from chairlift.runner.cuda.products.int4 import Int4, int4
from chairlift.runner.cuda.products.int4_weight import Int4Weight
from chairlift.runner.cuda.products.packed import Packed, PackedWeight
from unit.runner.weights.test_quantised import FORMATS, written

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)


def drawn(rows: int, columns: int, group: int, has_zeros: bool, is_paired: bool = False) -> tuple[Int4, Tensor]:
    """A matrix, and its numbers in float32."""
    codes = torch.randint(16, (rows, columns), dtype=torch.uint8)
    scales = (torch.rand(rows, columns // group) + 0.5).half()
    zeros = torch.randint(17, scales.shape, dtype=torch.int8) if has_zeros else torch.full(scales.shape, 8)
    table = torch.arange(16.0) - (0 if has_zeros else 8)
    packed = Packed(
        codes[:, ::2] | codes[:, 1::2] << 4, scales, zeros if has_zeros else None, None, table, None, columns
    )  # fmt: skip
    made = int4(packed, is_paired)
    assert made is not None
    wide = (each.float().repeat_interleave(group, 1) for each in (zeros, scales))
    return made, (codes.float() - next(wide)) * next(wide)


@pytest.mark.parametrize(("rows", "columns", "group"), [(128, 384, 128), (192, 256, 32), (100, 128, 64)])
@pytest.mark.parametrize("is_paired", [False, True])
def test_tiles_widen_to_their_numbers(rows: int, columns: int, group: int, is_paired: bool) -> None:
    matrix, wide = drawn(rows, columns, group, group != 32, is_paired)
    out = torch.empty(rows, columns, dtype=torch.float16)
    matrix.widen(out)
    assert torch.equal(out, wide.half())
    assert matrix.is_paired is (is_paired and rows % 64 == 0)
    ids = torch.tensor([0, 5, rows - 1, 77, 64])
    assert torch.equal(matrix.rows(ids, torch.float16), wide.half()[ids])


@pytest.mark.parametrize("is_paired", [False, True])
def test_a_matrix_that_is_widened_in_stretches_has_the_same_product(
    is_paired: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs come back in order, whatever tiles they were in."""
    matrix, wide = drawn(192, 128, 64, True, is_paired)
    ops, bias = CudaOps(), torch.randn(192)
    monkeypatch.setattr(weight_module, "MOST_WIDENED", 2 * 64 * 128)
    weight = Int4Weight(matrix, bias, torch.float32, ops._scratch, ops.weight, ops._hopper, None)
    x = torch.randn(3, 128)
    torch.testing.assert_close(weight.linear(x), torch.nn.functional.linear(x, wide, bias))
    torch.testing.assert_close(weight.logits(x), torch.nn.functional.linear(x, wide, bias))


def test_matrices_of_other_numbers_are_kept_as_they_are(tmp_path: Path) -> None:
    for name, is_int4 in (("awq", True), ("words-4", True), ("words-8", False), ("nvfp4", False)):
        tensors, _ = FORMATS[name][0]()
        (tmp_path / name).mkdir()
        rows, columns = 64, 128
        stored = written(tmp_path / name, tensors, FORMATS[name][1]).stored("m.weight", (rows, columns))
        assert stored is not None
        weight = CudaOps().stored_weight([stored], None, torch.bfloat16)
        assert isinstance(weight, Int4Weight if is_int4 else PackedWeight), name


def test_columns_in_an_order_of_their_own_are_left_to_others() -> None:
    scales = torch.ones(64, 1).half()
    order = torch.zeros(128, dtype=torch.int32)
    codes = torch.zeros(64, 64, dtype=torch.uint8)
    assert int4(Packed(codes, scales, None, None, torch.arange(16.0), order, 128)) is None
