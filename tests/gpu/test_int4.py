"""Weights of 4 bits on a real GPU: few rows as the widened matrix has them, and with `--exact` its bits."""

import pytest
import torch

from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.products.int4 import Int4, int4
from chairlift.runner.cuda.products.int4_weight import Int4Weight
from chairlift.runner.cuda.products.packed import Packed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
CUDA = torch.device("cuda")


def drawn(rows: int, columns: int, group: int, scales: torch.dtype, has_zeros: bool, is_paired: bool) -> Int4:
    shape = rows, columns // group
    codes = torch.randint(256, (rows, columns // 2), dtype=torch.uint8, device=CUDA)
    factors = (torch.rand(shape, device=CUDA) + 0.5).mul_(0.01).to(scales)
    zeros = torch.randint(17, shape, dtype=torch.int8, device=CUDA) if has_zeros else None
    table = torch.arange(16.0, device=CUDA) - (0 if has_zeros else 8)
    made = int4(Packed(codes, factors, zeros, None, table, None, columns), is_paired)
    assert made is not None
    return made


def weight_of(matrix: Int4, exact: bool, dtype: torch.dtype, bias: torch.Tensor | None = None) -> Int4Weight:
    ops = CudaOps(exact)
    ops._hopper.begin(CUDA, has_int4=True)
    return Int4Weight(matrix, bias, dtype, ops._scratch, ops.weight, ops._hopper, exact)


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="needs Hopper")
@pytest.mark.parametrize("scales", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "columns", "group", "has_zeros", "is_paired"),
    [(1024, 4096, 128, True, False), (500, 2048, 32, False, False), (768, 1536, 64, True, True),
     (640, 1024, 1024, False, True)],
)  # fmt: skip
def test_few_rows_are_near_the_widened_matrix_and_with_exact_are_it(
    rows: int, columns: int, group: int, has_zeros: bool, is_paired: bool, scales: torch.dtype
) -> None:
    matrix = drawn(rows, columns, group, scales, has_zeros, is_paired)
    wide = torch.empty(rows, columns, dtype=torch.bfloat16, device=CUDA)
    matrix.widen(wide)
    bias = torch.randn(rows, device=CUDA).bfloat16()
    ops = CudaOps(exact=True)
    ops._hopper.begin(CUDA)
    weight, plain = weight_of(matrix, True, torch.bfloat16, bias), ops.weight(wide, bias)
    fast = weight_of(matrix, False, torch.bfloat16)
    for count in (1, 2, 7, 8, 9, 16, 31, 64, 65, 200):
        x = torch.randn(count, columns, device=CUDA).bfloat16()
        assert torch.equal(weight.linear(x), plain.linear(x))
        assert torch.equal(weight.logits(x), plain.logits(x))
        assert torch.equal(weight.linear(x[-1:]), weight.linear(x)[-1:])
        want = x.double() @ wide.double().t()
        for _ in range(3):  # counters are 0 again after each
            assert (fast.logits(x) - want).norm() < 1e-4 * want.norm()
        if (out := fast.gated(x, "silu")) is not None:
            gate, up = want.chunk(2, 1)
            want = torch.nn.functional.silu(gate) * up
            assert (out - want).norm() < 1e-2 * want.norm()
    assert is_paired is (fast.gated(x[:1], "silu") is not None)


@pytest.mark.parametrize("group", [32, 128])
def test_float16_is_near_the_widened_matrix_and_with_exact_is_it(group: int) -> None:
    matrix = drawn(512, 2048, group, torch.float16, True, False)
    wide = torch.empty(512, 2048, dtype=torch.float16, device=CUDA)
    matrix.widen(wide)
    ops = CudaOps(exact=True)
    ops._hopper.begin(CUDA)
    for count in (1, 40):
        x = torch.randn(count, 2048, device=CUDA).half()
        assert torch.equal(weight_of(matrix, True, torch.float16).linear(x), ops.weight(wide).linear(x))
        want = x.double() @ wide.double().t()
        assert (weight_of(matrix, False, torch.float16).logits(x) - want).norm() < 1e-4 * want.norm()
