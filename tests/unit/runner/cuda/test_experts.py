"""Mixtures of experts by the CUDA kernels against torch's operations, in Triton's interpreter."""

import os
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from chairlift.models.spec import ACTIVATIONS, SCORES, ExpertsSpec, FeedForwardSpec
from chairlift.runner.cuda.experts.experts import EXACT_TILE, Tile, by_expert, by_row, choose, few_tile_of, sort
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.ops import Experts, Ops
from chairlift.runner.torch.experts import route
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.mxfp4 import MXFP4, in_halves, widened
from chairlift.runner.weights.source import Stored

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)
HIDDEN, INNER = 32, 24
SPEC = ExpertsSpec(count=3, num_chosen=2, is_normalised=True)
TILE = Tile(16, 16, 32, 4, 1)


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.3


def mixture(
    ops: Ops, spec: ExpertsSpec = SPEC, activation: str = "silu", dtype: torch.dtype = torch.float32
) -> Experts:
    def bias(rows: int, seed: int) -> Tensor | None:
        return numbers(spec.count, rows, seed=seed).to(dtype) if spec.has_bias else None

    def matrix(rows: int, columns: int, seed: int) -> Tensor:
        return numbers(spec.count, rows, columns, seed=seed).to(dtype)

    return Experts(
        spec=FeedForwardSpec(width=INNER, activation=activation, experts=spec),
        router=ops.weight(numbers(spec.count, HIDDEN, seed=1).to(dtype)),
        correction=numbers(spec.count, seed=2) if spec.has_correction else None,
        gate_up=ops.expert_weight(matrix(2 * INNER, HIDDEN, 3), bias(2 * INNER, 4)),
        down=ops.expert_weight(matrix(HIDDEN, INNER, 5), bias(HIDDEN, 6)),
    )


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("has_correction", [False, True])
@pytest.mark.parametrize(("num_chosen", "is_normalised"), [(1, False), (5, True)])
def test_rows_choose_as_in_torch(scores: str, has_correction: bool, num_chosen: int, is_normalised: bool) -> None:
    spec = ExpertsSpec(
        count=37, num_chosen=num_chosen, scores=scores, is_normalised=is_normalised, factor=2.5,
        has_correction=has_correction,
    )  # fmt: skip
    logits = 3 * numbers(7, 37, seed=0)
    correction = numbers(37, seed=1) if has_correction else None
    ids, weights = choose(logits, spec, correction)
    wanted_ids, wanted = route(logits, spec, correction)
    assert ids.tolist() == wanted_ids.tolist()
    torch.testing.assert_close(weights, wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_of_equal_scores_the_first_are_chosen_and_no_number_at_all_stays_in_bounds() -> None:
    logits = torch.zeros(3, 5)
    logits[1, 3], logits[2] = 1.0, torch.nan
    ids, _ = choose(logits, ExpertsSpec(count=5, num_chosen=2), None)
    assert (
        ids[:2].tolist() == [[0, 1], [3, 0]] == route(logits[:2], ExpertsSpec(count=5, num_chosen=2), None)[0].tolist()
    )
    assert int(ids.min()) >= 0 and int(ids.max()) < 5


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_pairs_are_sorted_by_expert_in_tiles(rows: int) -> None:
    ids = torch.randint(0, 7, (40 * rows, 2), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    ids[ids == 5] = 6  # one that nothing chose
    pairs, tiles, num_tiles = sort(ids, 7, rows)
    flat = ids.flatten().tolist()
    assert pairs.tolist() == sorted(range(len(flat)), key=lambda pair: flat[pair])
    found = tiles[: int(num_tiles)].tolist()
    wanted, place = [], 0
    for expert in range(7):
        count = flat.count(expert)
        wanted += [[expert, place + low, min(rows, count - low)] for low in range(0, count, rows)]
        place += count
    assert found == wanted


@pytest.mark.parametrize(("num_rows", "rows"), [(1, 8), (16, 8), (17, 16), (128, 16), (129, None)])
def test_the_kernel_for_hopper_takes_few_rows_of_each_expert(num_rows: int, rows: int | None) -> None:
    assert few_tile_of(num_rows, ExpertsSpec(count=32, num_chosen=4)) == rows


@pytest.mark.sampled(2)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_rows", [2, 9])
def test_few_rows_and_many_give_what_torch_gives(activation: str, has_bias: bool, num_rows: int) -> None:
    spec = replace(SPEC, has_bias=has_bias)
    x, shared = numbers(num_rows, HIDDEN, seed=9), numbers(num_rows, HIDDEN, seed=10) if has_bias else None
    want = TorchOps().experts(x, mixture(TorchOps(), spec, activation), shared)
    own = mixture(CudaOps(), spec, activation)
    ids, weights = choose(own.router.logits(x), spec, None)
    got = by_row(x, own, ids, weights, shared) if num_rows == 2 else by_expert(x, own, ids, weights, shared, TILE)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("ordered_dots")
def test_the_bits_of_a_row_do_not_depend_on_rows_that_share_its_experts() -> None:
    ops = CudaOps(exact=True)
    own = mixture(ops, dtype=torch.bfloat16)
    x = numbers(EXACT_TILE.rows + 3, HIDDEN, seed=3).bfloat16()
    among = ops.experts(x, own, None)
    for row in (5, EXACT_TILE.rows):
        assert torch.equal(ops.experts(x[row : row + 1], own, None)[0], among[row])
    assert torch.equal(ops.experts(x.flip(0), own, None).flip(0), among)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("num_rows", "activation"), [(2, "clamped"), (9, "silu")])
def test_weights_of_four_bits_are_multiplied_as_the_numbers_they_stand_for(num_rows: int, activation: str) -> None:
    has_bias = activation == "clamped"
    spec, hidden, inner = replace(SPEC, has_bias=has_bias), 64, 32
    source = torch.Generator().manual_seed(0)

    def four_bits(rows: int, columns: int) -> tuple[Tensor, Tensor]:
        shape = spec.count, rows, columns // 32
        blocks = torch.randint(0, 256, (*shape, 16), generator=source, dtype=torch.uint8)
        return blocks, torch.randint(120, 126, shape, generator=source, dtype=torch.uint8)

    stored = four_bits(2 * inner, hidden), four_bits(hidden, inner)
    widths = 2 * inner, hidden
    biases = [numbers(spec.count, width, seed=seed) if has_bias else None for seed, width in enumerate(widths, 1)]
    ops, plain = CudaOps(), TorchOps()
    own = [
        ops.mxfp4_experts([Stored("", MXFP4, (in_halves(blocks), scales), (), 32)], bias, torch.bfloat16)
        for (blocks, scales), bias in zip(stored, biases, strict=True)
    ]
    wide = [plain.expert_weight(widened(*each), bias) for each, bias in zip(stored, biases, strict=True)]
    layer = FeedForwardSpec(width=inner, activation=activation, experts=spec)
    router, x = numbers(spec.count, hidden, seed=3), numbers(num_rows, hidden, seed=4)
    want = plain.experts(x, Experts(layer, plain.weight(router), None, *wide), None)
    got = ops.experts(x, Experts(layer, ops.weight(router), None, *own), None)
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
