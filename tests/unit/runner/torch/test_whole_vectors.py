"""Exponentials of a row have the same bits alone and among others, whatever its width."""

import pytest
import torch

from chairlift.models.spec import ExpertsSpec
from chairlift.runner.row_exact import sigmoid
from chairlift.runner.torch.experts import route


@pytest.mark.parametrize("width", [1, 6, 10, 60, 64, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rows_bits_do_not_depend_on_other_rows(width: int, dtype: torch.dtype) -> None:
    x = torch.randn(70, width, dtype=dtype, generator=torch.Generator().manual_seed(width))
    among = sigmoid(x)
    assert torch.equal(among, torch.cat([sigmoid(row.clone()) for row in x.split(1)]))
    assert torch.equal(among[3:], sigmoid(x[3:].clone()))
    torch.testing.assert_close(among, torch.sigmoid(x))


def test_nor_on_how_many_threads_share_the_rows() -> None:
    """Where torch splits them depends on their number; few of the elements there have other bits."""
    x = torch.randn(1400, 60, generator=torch.Generator().manual_seed(2))
    alone = torch.cat([sigmoid(row.clone()) for row in x.split(1)])
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert all(torch.equal(sigmoid(x[:count]), alone[:count]) for count in range(1100, 1400))
    finally:
        torch.set_num_threads(before)


def test_the_choice_of_experts_neither() -> None:
    spec = ExpertsSpec(count=6, num_chosen=2, scores="sigmoid")
    logits = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    _, among = route(logits, spec, None)
    assert torch.equal(among, torch.cat([route(row.clone(), spec, None)[1] for row in logits.split(1)]))
