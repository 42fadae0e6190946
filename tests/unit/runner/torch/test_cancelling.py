from fractions import Fraction

import pytest
import torch

from chairlift.runner.torch.cancelling import cancelling


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("width", [1, 2, 33, 96])
@pytest.mark.parametrize("has_bias", [False, True])
def test_what_is_added_up_cancels(dtype: torch.dtype, width: int, has_bias: bool) -> None:
    matrix, bias, x = cancelling(torch.Size((66, width)), dtype, 0, has_bias, 2)
    biases = [0.0] * 66 if bias is None else bias.tolist()
    assert any(biases) == has_bias
    for weights, first in zip(matrix.tolist(), biases, strict=True):
        for row in x.tolist():
            assert sum((Fraction(a) * Fraction(b) for a, b in zip(row, weights, strict=True)), Fraction(first)) == 0


def test_rows_and_outputs_are_no_copies_of_each_other() -> None:
    matrix, _, x = cancelling(torch.Size((64, 96)), torch.bfloat16, 0, False, 256)
    assert len(matrix.unique(dim=0)) == 64
    assert len(x.unique(dim=0)) == 256


@pytest.mark.parametrize("offset", [0, 2, 48])
def test_a_matrix_lies_where_it_is_wanted(offset: int) -> None:
    matrix = cancelling(torch.Size((70, 33)), torch.bfloat16, offset, False, 1)[0]
    assert matrix.data_ptr() % 64 == offset
    assert matrix.is_contiguous()
