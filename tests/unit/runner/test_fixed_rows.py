"""Products in fixed row counts: over torch's own, and over made-up libraries that misbehave."""

import pytest
import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.fixed_rows import equal_counts, in_blocks
from chairlift.runner.torch_ops import TorchOps

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "k"), [(576, 1536), (100, 70), (1, 33)])
def test_a_row_has_the_same_bits_in_every_batch(dtype: torch.dtype, n: int, k: int) -> None:
    weight = TorchOps(exact=True).weight(random(n, k, dtype=dtype), random(n, seed=2, dtype=dtype))
    x = random(300, k, seed=1, dtype=dtype)
    products = (weight.linear,) if n > 1 else (weight.linear, weight.logits)
    for product in products:
        whole = product(x)
        assert len(whole) == 300
        for rows in (1, 2, 3, 5, 16, 17, 31, 64, 100, 200, 299):
            assert torch.equal(product(x[:rows]), whole[:rows]), rows
            assert torch.equal(product(x[300 - rows :]), whole[300 - rows :]), rows


def test_the_product_is_the_library_s_to_rounding() -> None:
    matrix, bias, x = random(90, 70), random(90, seed=2), random(21, 70, seed=1)
    torch.testing.assert_close(TorchOps(exact=True).weight(matrix, bias).linear(x), x @ matrix.T + bias)


def test_a_matrix_that_is_an_embedding_too_keeps_its_rows() -> None:
    matrix = random(50, 64, dtype=torch.bfloat16)
    weight, ids = TorchOps(exact=True).weight(matrix), torch.tensor([3, 49, 3])
    assert torch.equal(weight.rows(ids), matrix[ids])
    x = random(40, 64, seed=1, dtype=torch.bfloat16)
    whole = weight.logits(x)
    assert whole.dtype is torch.float32
    assert torch.equal(weight.logits(x[7:8]), whole[7:8])


class Library:
    """Adds up forwards; backwards where the number of rows is one of these."""

    def __init__(self, *backwards: int) -> None:
        self.matrix = random(40, 64)
        self.backwards = backwards
        self.seen: list[int] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        order = range(63, -1, -1) if len(x) in self.backwards else range(64)
        total = torch.zeros(len(x), 40)
        for i in order:
            total += x[:, i, None] * self.matrix[:, i]
        return total


def test_row_counts_with_other_sums_are_not_used() -> None:
    library = Library(1, 2, 64, 256)
    counts = equal_counts(library, 64, torch.float32)
    assert counts == (128, 32, 16, 8, 4)
    x = random(200, 64, seed=1)
    library.seen.clear()
    whole = in_blocks(library, x, counts)
    alone = torch.cat([in_blocks(library, row, counts) for row in x.split(1)])
    assert torch.equal(whole, alone)
    assert set(library.seen) <= set(counts)


def test_no_rows_give_no_rows() -> None:
    assert in_blocks(Library(), random(0, 64), (16,)).shape == (0, 40)


def test_a_library_whose_rows_depend_on_their_place_is_refused() -> None:
    library = Library()

    def place_counts(x: Tensor) -> Tensor:
        return library(x) * (1.0 + 1e-6 * torch.arange(len(x))[:, None])

    with pytest.raises(InvalidConfig, match=r"^exact: .* another place of a batch; leave --exact out$"):
        equal_counts(place_counts, 64, torch.float32)


def test_a_library_that_looks_at_where_rows_lie_is_refused() -> None:
    library = Library()

    def product(x: Tensor) -> Tensor:
        return library(x) + (x.storage_offset() // 64 in (16, 128, 144))

    with pytest.raises(InvalidConfig, match="leave --exact out"):
        equal_counts(product, 64, torch.float32)
