"""Products in which a row does not depend on the others, in Triton's interpreter; on a GPU: tests/gpu/test_exact.py."""

import os

import pytest
import torch
from torch import Tensor

from chairlift.core.limits import Limits
from chairlift.models.spec import ACTIVATIONS
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.products import exact as exact_product
from chairlift.runner.cuda.products.exact import ExactWeight, ProductTrials, Tile, first_equal, gated, padded, product
from chairlift.runner.cuda.step.graph_key import ladder
from chairlift.runner.ops import Adding, Norm

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("ordered_dots"),
]


@pytest.mark.parametrize(
    ("shape", "dtype", "num_full"),
    [((128, 128), torch.float32, 64), ((128, 128), torch.bfloat16, 48), ((70, 100), torch.bfloat16, 64),
     ((70, 100), torch.float32, 48), ((3, 16), torch.float32, 64), ((3, 16), torch.bfloat16, 48)],
)  # fmt: skip
def test_any_tile_gives_a_row_the_same_bits(shape: tuple[int, int], dtype: torch.dtype, num_full: int) -> None:
    matrix, x = torch.randn(shape).to(dtype), torch.randn(40, shape[1]).to(dtype)
    want = product(x, matrix, torch.float32, Tile(64, 64, 16, 32, 4, 2))
    torch.testing.assert_close(want, x.float() @ matrix.float().t(), atol=1e-4, rtol=1e-4)
    for rows, stretch in ((16, 128), (64, 64)):
        tile = Tile(64, num_full, rows, stretch, 4, 2)
        assert torch.equal(product(x, matrix, torch.float32, tile), want)
        assert torch.equal(product(x[7:12].clone(), matrix, torch.float32, tile), want[7:12])


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_weight_multiplies_and_adds_its_bias(has_bias: bool) -> None:
    matrix, x = torch.randn(70, 100), torch.randn(3, 100)
    bias = torch.randn(70) if has_bias else None
    weight = ExactWeight(matrix, bias, ProductTrials())
    want = torch.nn.functional.linear(x, matrix, bias)
    torch.testing.assert_close(weight.linear(x), want)
    torch.testing.assert_close(weight.logits(x), want)
    assert torch.equal(weight.rows(torch.tensor([4, 2])), matrix[[4, 2]])


def test_no_rows_give_no_rows() -> None:
    weight = ExactWeight(torch.randn(70, 100).to(torch.bfloat16), None, ProductTrials())
    got = weight.logits(torch.empty(0, 100, dtype=torch.bfloat16))
    assert got.shape == (0, 70) and got.dtype is torch.float32


def test_captured_steps_are_not_padded_and_few_row_counts_are_tried() -> None:
    limits = Limits(
        vocab_size=9, max_model_len=100, block_size=4, num_blocks=9, max_running=512, max_step_tokens=4096
    )  # fmt: skip
    assert all(padded(rung) == rung for rung in ladder(limits))
    assert all(padded(count) >= count for count in range(1, 3000))
    assert len({padded(count) for count in range(1, 2049)}) < 130


def by_rows(x: Tensor, matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """The order of sums depends on the number of rows."""
    half = 32 if len(x) > 2 else 0
    return (x[:, half:] @ matrix[:, half:].t() + x[:, :half] @ matrix[:, :half].t()).to(dtype)


def test_a_library_is_used_only_where_its_bits_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_product, "_TRIED", 1 << 12)
    matrix = torch.randn(256, 64)
    tile = Tile(64, 64, 16, 64, 4, 2)

    def equal(x: Tensor, matrix: Tensor, dtype: torch.dtype) -> Tensor:
        return product(x, matrix, dtype, tile)

    assert first_equal([by_rows, equal], matrix, torch.float32, 16) is equal
    found = first_equal([by_rows], matrix, torch.float32, 16)
    x = torch.randn(3, 64)
    assert torch.equal(found(x, matrix, torch.float32), equal(x, matrix, torch.float32))


@pytest.mark.parametrize(
    ("shape", "num_rows", "activation"),
    [(shape, (1, 3, 16)[(i + j) % 3], activation)
     for i, shape in enumerate([(256, 128), (140, 100), (6, 16)]) for j, activation in enumerate(ACTIVATIONS)],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # of numpy: the quotient is 0 then
def test_the_activation_inside_the_product_changes_no_bit(
    shape: tuple[int, int], num_rows: int, activation: str
) -> None:
    matrix, x = torch.randn(shape).to(torch.bfloat16), torch.randn(num_rows, shape[1]).to(torch.bfloat16)
    weight = ExactWeight(matrix, None, ProductTrials())
    want = CudaOps(exact=True).activate(weight.linear(x), activation)
    assert want.abs().max() > 0
    assert torch.equal(gated(x, matrix, activation), want)
    assert torch.equal(weight.gated(x, activation, lambda *_: torch.empty(0)), want)


def test_what_the_kernel_of_a_few_rows_does_not_take_is_activated_apart() -> None:
    matrix, bias = torch.randn(12, 16).to(torch.bfloat16), torch.randn(12).to(torch.bfloat16)
    for own_bias, num_rows in ((bias, 1), (None, 17)):
        weight = ExactWeight(matrix, own_bias, ProductTrials())
        x = torch.randn(num_rows, 16).to(torch.bfloat16)
        assert torch.equal(weight.gated(x, "silu", lambda product, _: -product), -weight.linear(x))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_small_operations_give_a_row_the_same_bits_beside_any_number_of_others(activation: str) -> None:
    ops, x, residual, gain = CudaOps(exact=True), torch.randn(9, 100), torch.randn(9, 100), torch.rand(100)

    def each(rows: slice) -> list[Tensor]:
        return [
            ops.activate(x[rows], activation), ops.norm(x[rows], Norm(gain, 1e-5)), ops.cap(40 * x[rows], 30.0),
            *ops.add_norm(x[rows].clone(), residual[rows].clone(), Norm(gain, 1e-5), Adding(0.22)),
        ]  # fmt: skip

    whole = each(slice(0, 9))
    for rows in (slice(0, 1), slice(8, 9), slice(2, 7)):
        assert all(torch.equal(part, all_rows[rows]) for part, all_rows in zip(each(rows), whole, strict=True))
