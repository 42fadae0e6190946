"""Products in fixed row counts: over torch's own, and over fake libraries that misbehave."""

from collections.abc import Collection
from functools import partial

import pytest
import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.torch.fixed_rows import FixedRowsWeight, RowCounts, equal_counts, in_blocks
from chairlift.runner.torch.ops import TorchOps

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
        try:
            whole = product(x)
        except InvalidConfig as error:  # some libraries with many threads
            pytest.skip(f"is refused here: {error}")
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
    """Adds up forwards, with the bias last; backwards, with the bias first, where the number of rows is one of these.
    Sums are in float32 and rounded once, to the type of the inputs."""

    def __init__(self, matrix: Tensor, bias: Tensor | None = None, backwards: Collection[int] = ()) -> None:
        self.matrix = matrix.float()
        self.bias = torch.zeros(len(matrix)) if bias is None else bias.float()
        self.backwards = backwards
        self.seen: list[int] = []

    def linear(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        terms = [column[:, None] * weights for column, weights in zip(x.float().T, self.matrix.T, strict=True)]
        terms.append(self.bias.expand(len(x), -1))
        return sum(reversed(terms) if len(x) in self.backwards else terms, torch.zeros(())).to(x.dtype)

    logits = linear

    def rows(self, ids: Tensor) -> Tensor:
        return self.matrix[ids]


class LibraryForTables(Library):
    """Multiplies by a matrix that is a table too in another way."""

    def rows(self, ids: Tensor) -> Tensor:
        self.backwards = (1, 2)
        return super().rows(ids)


def test_row_counts_with_other_sums_are_not_used() -> None:
    library = Library(random(40, 64), backwards=(1, 2, 64, 256))
    counts = equal_counts(library.linear, random(256, 64))
    assert counts == (128, 32, 16, 8, 4)
    x = random(200, 64, seed=1)
    library.seen.clear()
    whole = in_blocks(library.linear, x, counts)
    alone = torch.cat([in_blocks(library.linear, row, counts) for row in x.split(1)])
    assert torch.equal(whole, alone)
    assert set(library.seen) <= set(counts)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "k"), [(96, 96), (40, 63), (3, 16)])
def test_other_sums_are_found_though_rounding_hides_nearly_all_of_them(dtype: torch.dtype, n: int, k: int) -> None:
    found: RowCounts = {}
    for bias in (None, random(n, seed=2, dtype=dtype)):
        weight = FixedRowsWeight(partial(Library, backwards=(1, 32)), random(n, k, dtype=dtype), bias, found)
        weight.linear(random(1, k, seed=1, dtype=dtype))
    assert list(found.values()) == 2 * [(256, 128, 64, 16, 8, 4, 2)]


def test_a_table_is_tried_as_a_table() -> None:
    found: RowCounts = {}
    for is_table in (False, True):
        weight = FixedRowsWeight(LibraryForTables, random(50, 64, dtype=torch.bfloat16), None, found)
        if is_table:
            weight.rows(torch.tensor([3]))
        weight.logits(random(1, 64, seed=1, dtype=torch.bfloat16))
    assert list(found.values()) == [(256, 128, 64, 32, 16, 8, 4, 2, 1), (256, 128, 64, 32, 16, 8, 4)]


def test_a_matrix_is_tried_as_it_lies_in_memory() -> None:
    places = []

    def make(matrix: Tensor, bias: Tensor | None) -> Library:
        places.append(matrix.data_ptr() % 64)
        return Library(matrix, bias)

    room = random(50 * 64 + 9, dtype=torch.bfloat16)
    for first in (0, 1, 9):
        matrix = room[first : first + 50 * 64].view(50, 64)
        FixedRowsWeight(make, matrix, None, {}).linear(random(1, 64, dtype=torch.bfloat16))
    assert places[::2] == places[1::2]
    assert len(set(places)) == 3


def test_no_rows_give_no_rows() -> None:
    assert in_blocks(Library(random(40, 64)).linear, random(0, 64), (16,)).shape == (0, 40)


def test_a_library_whose_rows_depend_on_their_place_is_refused() -> None:
    library = Library(random(40, 64))

    def place_counts(x: Tensor) -> Tensor:
        return library.linear(x) * (1.0 + 1e-6 * torch.arange(len(x))[:, None])

    with pytest.raises(InvalidConfig, match=r"^exact: .* another place of a batch; leave --exact out$"):
        equal_counts(place_counts, random(256, 64))


def test_a_library_that_looks_at_where_rows_lie_is_refused() -> None:
    library = Library(random(40, 64))

    def product(x: Tensor) -> Tensor:
        return library.linear(x) + (x.storage_offset() // 64 in (16, 128, 144))

    with pytest.raises(InvalidConfig, match="leave --exact out"):
        equal_counts(product, random(256, 64))
