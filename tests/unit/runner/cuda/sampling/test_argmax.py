import os

import pytest
import torch

from chairlift.runner.cuda.sampling.argmax import argmax_kernel

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)


def test_the_first_of_the_largest_is_chosen_and_kept_and_none_where_it_is_not_a_number() -> None:
    logits = torch.zeros(7, 100)
    logits[0, 70] = 2.0
    logits[1, [40, 90]] = 3.0  # in two tiles
    logits[2] = -5.0
    logits[3, 50] = torch.nan
    logits[4] = -torch.inf
    logits[5, 99] = torch.inf
    logits[6, 5] = 1.0
    sample_rows = torch.tensor([3, 0, 1, 2, 4, 5, -1], dtype=torch.int32)
    tokens, last = torch.full((7,), -9), torch.full((8,), -9)
    argmax_kernel[(7,)](logits, sample_rows, tokens, last, 100, 7, TILE=32)
    assert tokens.tolist() == [70, 40, 0, -1, -1, -1, 5]
    assert last.tolist() == [40, 0, 0, 70, 0, 0, -9, 5]
