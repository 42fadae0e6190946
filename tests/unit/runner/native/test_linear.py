"""Products and rows of packed matrices, against products of the same numbers in float32 or more, on every instruction
set that this processor has."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.runner.native import library
from chairlift.runner.native.ops import NativeOps, available

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built or not for this processor")

# Every matrix, and every number of rows at which another loop takes over.
SHAPES = [
    (32, 32, 16), (960, 576, 1), (576, 1536, 17), (33, 70, 45), (100, 64, 13), (7, 33, 3), (1, 1, 1), (1, 1, 70),
    (65, 2048, 12), (65, 2048, 32), (32, 32, 5), (100, 64, 50), (33, 70, 100),
]  # fmt: skip
AVX2, AVX512 = library.HAS_AVX2, library.HAS_AVX2 | library.HAS_AVX512
SETS = {"baseline": 0, "avx2": AVX2, "avx512": AVX512, "all": -1}


@pytest.fixture(params=SETS, scope="module", autouse=True)
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


@pytest.mark.parametrize(("n", "k", "rows"), SHAPES)
def test_products_are_those_of_float32(n: int, k: int, rows: int) -> None:
    check_product(n, k, rows)


@given(n=st.integers(1, 130), k=st.integers(1, 200), rows=st.integers(1, 80))
@settings(max_examples=60, deadline=None)
def test_products_of_any_shape_are_those_of_float32(n: int, k: int, rows: int) -> None:
    check_product(n, k, rows)


def check_product(n: int, k: int, rows: int) -> None:
    """Without a bias, with one and rounded, and of float32."""
    matrix, bias, x = random(n, k), random(n, seed=2), random(rows, k, seed=1)
    product = x.float() @ matrix.float().T
    logits = NativeOps(2).weight(matrix).logits(x)
    assert logits.dtype is torch.float32
    torch.testing.assert_close(logits, product, rtol=1e-4, atol=1e-3)
    weight = NativeOps(2).weight(matrix, bias)
    torch.testing.assert_close(weight.linear(x).float(), product + bias.float(), rtol=8e-3, atol=1e-3)
    torch.testing.assert_close(weight.linear(x), weight.logits(x).bfloat16(), rtol=0, atol=0)
    check_product_of_floats(matrix.float(), bias.float(), x.float())


def check_product_of_floats(matrix: torch.Tensor, bias: torch.Tensor, x: torch.Tensor) -> None:
    weight = NativeOps(2).weight(matrix, bias)
    expected = (x.double() @ matrix.double().T + bias.double()).float()
    torch.testing.assert_close(weight.linear(x), expected, rtol=1e-5, atol=1e-4)
    assert torch.equal(weight.logits(x), weight.linear(x))


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
