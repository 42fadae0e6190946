"""Products and rows of packed matrices, against products of the same numbers in float32 or more, on every instruction
set that this processor has."""

from collections.abc import Iterator

import pytest
import torch

from chairlift.runner.native import library
from chairlift.runner.native.ops import NativeOps, available

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built or not for this processor")

SHAPES = [(32, 32), (960, 576), (576, 1536), (33, 70), (100, 64), (7, 33), (1, 1), (65, 2048)]
AVX2, AVX512 = library.HAS_AVX2, library.HAS_AVX2 | library.HAS_AVX512
SETS = {"baseline": 0, "avx2": AVX2, "avx512": AVX512, "all": -1}


@pytest.fixture(params=SETS, autouse=True)
def instructions(request: pytest.FixtureRequest) -> Iterator[None]:
    loaded = library.load()
    assert loaded is not None
    allowed, found = SETS[request.param], library.features()
    if allowed & ~found and allowed > 0:
        pytest.skip(f"this processor has no {request.param}")
    loaded.chairlift_features(allowed)
    yield
    loaded.chairlift_features(-1)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize(("n", "k"), SHAPES)
@pytest.mark.parametrize("rows", [1, 3, 16, 17, 32, 45, 70])
def test_logits_are_the_float32_product(n: int, k: int, rows: int) -> None:
    matrix, x = random(n, k), random(rows, k, seed=1)
    logits = NativeOps(2).weight(matrix).logits(x)
    assert logits.dtype is torch.float32
    torch.testing.assert_close(logits, x.float() @ matrix.float().T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_linear_is_the_rounded_product_plus_bias(n: int, k: int) -> None:
    matrix, bias, x = random(n, k), random(n, seed=2), random(9, k, seed=1)
    weight = NativeOps(2).weight(matrix, bias)
    expected = x.float() @ matrix.float().T + bias.float()
    torch.testing.assert_close(weight.linear(x).float(), expected, rtol=8e-3, atol=1e-3)
    torch.testing.assert_close(weight.linear(x), weight.logits(x).bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("n", "k"), [(960, 576), (100, 70)])
def test_a_row_has_the_same_bits_in_every_batch(n: int, k: int, dtype: torch.dtype) -> None:
    weight, x = NativeOps(2).weight(random(n, k, dtype=dtype)), random(70, k, seed=1, dtype=dtype)
    whole = weight.logits(x)
    for rows in range(1, 70):
        assert torch.equal(weight.logits(x[:rows]), whole[:rows]), rows
        assert torch.equal(weight.logits(x[70 - rows :]), whole[70 - rows :]), rows


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_row_has_the_same_bits_on_any_number_of_threads(dtype: torch.dtype) -> None:
    matrix, x = random(1000, 576, dtype=dtype), random(40, 576, seed=1, dtype=dtype)
    alone = NativeOps(1).weight(matrix).logits(x)
    assert torch.equal(NativeOps(3).weight(matrix).logits(x), alone)


@pytest.mark.parametrize(("n", "k"), [(100, 576), (33, 70), (40, 33)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_rows_are_the_matrix_s_own(n: int, k: int, dtype: torch.dtype) -> None:
    matrix = random(n, k, dtype=dtype)
    ids = torch.tensor([0, n - 1, 5, 5, n // 2])
    assert torch.equal(NativeOps(2).weight(matrix).rows(ids), matrix[ids])


def test_no_rows_give_no_rows() -> None:
    weight = NativeOps(2).weight(random(64, 32))
    assert weight.linear(random(0, 32)).shape == (0, 64)


@pytest.mark.parametrize(("n", "k"), SHAPES)
@pytest.mark.parametrize("rows", [1, 5, 12, 13, 50, 100])
def test_float32_matrices_are_multiplied_in_float32(n: int, k: int, rows: int) -> None:
    matrix, bias, x = (random(*shape, dtype=torch.float32) for shape in ((n, k), (n,), (rows, k)))
    weight = NativeOps(2).weight(matrix, bias)
    expected = (x.double() @ matrix.double().T + bias.double()).float()
    torch.testing.assert_close(weight.linear(x), expected, rtol=1e-5, atol=1e-4)
    assert torch.equal(weight.logits(x), weight.linear(x))
