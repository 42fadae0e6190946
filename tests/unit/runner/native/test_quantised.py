"""Products with quantised matrices: against what the blocks stand for, and bit for bit against plain C, on every
instruction set that this processor has."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from chairlift.core.errors import InvalidConfig
from chairlift.models.shards import Cut
from chairlift.runner.native import library
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.native.quantised import INT4, INT8
from chairlift.runner.ops import Weight
from chairlift.runner.weights.source import Stored
from fakes.gguf_blocks import INTEGERS, TYPES, blocks_of, random_blocks, random_integers, values_of

pytestmark = pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")

KINDS = (*TYPES, *INTEGERS)
AVX2, AVX512 = library.HAS_AVX2, library.HAS_AVX2 | library.HAS_AVX512
SETS = {
    "avx2": AVX2,
    "avx512-vnni": AVX512 | library.HAS_AVX512_VNNI,
    "neon": library.HAS_NEON,
    "dotprod": library.HAS_NEON | library.HAS_DOTPROD,
    "all": -1,
}


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def stored(kind: str, rows: int, columns: int) -> tuple[Stored, NDArray[np.float32]]:
    """With what it stands for."""
    if kind in INTEGERS:
        return random_integers(kind, rows, columns)
    raw = random_blocks(kind, rows, columns)
    return blocks_of(kind, raw, columns), values_of(kind, raw)


def kept(kind: str, rows: int, columns: int, threads: int = 2, bias: torch.Tensor | None = None) -> Weight:
    return NativeOps(threads).stored_weight([stored(kind, rows, columns)[0]], bias, torch.float32)


def with_features(mask: int, weight: Weight, x: torch.Tensor) -> torch.Tensor:
    loaded = library.load()
    assert loaded is not None
    loaded.chairlift_features(mask)
    try:
        return weight.logits(x)
    finally:
        loaded.chairlift_features(-1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_is_near_that_of_the_values(kind: str) -> None:
    weight, x = kept(kind, 100, 768), random(9, 768)
    expected = x.double().numpy() @ stored(kind, 100, 768)[1].T.astype(np.float64)
    error = np.linalg.norm(weight.logits(x).numpy() - expected) / np.linalg.norm(expected)
    assert error < 0.01  # rows are rounded to 8 bits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETS)
def test_every_instruction_set_has_the_bits_of_plain_c(kind: str, name: str) -> None:
    if SETS[name] & ~library.features() and SETS[name] > 0:
        pytest.skip(f"needs a processor with {name}")
    weight = kept(kind, 50, 1536)
    for num_rows in (1, 2, 3, 4, 7, 8, 16, 33):
        x = random(num_rows, 1536)
        assert torch.equal(with_features(SETS[name], weight, x), with_features(0, weight, x)), num_rows


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_in_every_batch(kind: str) -> None:
    weight, x = kept(kind, 65, 512), random(300, 512)
    whole = weight.logits(x)
    for first, end in ((0, 1), (299, 300), (7, 9), (10, 13), (100, 104), (3, 20), (0, 257)):
        assert torch.equal(weight.logits(x[first:end]), whole[first:end])


@pytest.mark.parametrize("kind", ["Q4_1", "Q6_K"])
def test_a_row_has_the_same_bits_on_any_number_of_threads(kind: str) -> None:
    x = random(40, 512)
    assert torch.equal(kept(kind, 1000, 512, threads=3).logits(x), kept(kind, 1000, 512, threads=1).logits(x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_are_the_file_s_own_values(kind: str, dtype: torch.dtype) -> None:
    matrix, values = stored(kind, 50, 256)
    weight = NativeOps(2).stored_weight([matrix], None, dtype)
    ids = torch.tensor([0, 49, 16, 16, 31])
    expected = torch.from_numpy(values[ids])
    if kind in INTEGERS:
        assert torch.equal(weight.rows(ids), expected.to(dtype))
    torch.testing.assert_close(
        weight.rows(ids), expected.to(dtype), rtol=1e-6 if dtype is torch.float32 else 8e-3, atol=1e-7
    )


def test_parts_of_several_types_are_stacked() -> None:
    parts = [stored(kind, rows, 256)[0] for kind, rows in (("Q4_K", 33), ("W4", 10), ("W4-order", 10), ("Q8_0", 7))]
    bias, x, ops = random(60, seed=2), random(5, 256), NativeOps(2)
    stacked = ops.stored_weight(parts, bias, torch.float32).linear(x)
    alone = [ops.stored_weight([part], None, torch.float32).linear(x) for part in parts]
    assert torch.equal(stacked, torch.cat(alone, dim=1) + bias)


def test_neighbours_of_one_type_share_panels() -> None:
    for kind in ("Q4_1", "W8-zeros"):
        matrix, _ = stored(kind, 30, 64)
        parts = [matrix.cut(Cut("", (30, 64), 0, (span,))) for span in ((0, 13), (13, 30))]
        x = random(3, 64)
        whole = NativeOps(1).stored_weight([matrix], None, torch.float32)
        stacked = NativeOps(1).stored_weight(parts, None, torch.float32)
        assert len(stacked.parts) == 1 and torch.equal(stacked.linear(x), whole.linear(x))


def test_rows_in_bf16_give_what_their_float32_values_give() -> None:
    x = random(6, 512, dtype=torch.bfloat16)
    weight = kept("Q4_1", 40, 512)
    assert torch.equal(weight.logits(x), weight.logits(x.float()))


def test_a_row_that_is_not_finite_gives_no_number() -> None:
    x = random(3, 512)
    x[0, 5], x[1, 300] = float("nan"), float("inf")
    out = kept("Q4_1", 40, 512).logits(x)
    assert out[:2].isnan().all() and out[2].isfinite().all()


def test_a_row_of_zeros_gives_the_bias() -> None:
    bias = random(40)
    assert torch.equal(kept("Q5_0", 40, 512, bias=bias).linear(torch.zeros(1, 512))[0], bias)


@pytest.mark.parametrize(("kind", "at"), [("Q4_1", 2), ("Q8_0", 0), ("Q6_K", 208), ("Q4_K", 2)])
@pytest.mark.parametrize("scale", [np.nan, np.inf])
def test_a_scale_that_is_not_finite_is_refused(kind: str, at: int, scale: float) -> None:
    raw = random_blocks(kind, 40, 512)
    block = raw[37].reshape(-1, len(raw[37]) // (2 if kind.endswith("K") else 16))[1]
    block[at : at + 2] = np.array([scale], np.float16).view(np.uint8)
    with pytest.raises(InvalidConfig, match=f"^a {kind} tensor has a scale that is not a finite number$"):
        NativeOps(2).stored_weight([blocks_of(kind, raw, 512)], None, torch.float32)


@pytest.mark.parametrize(("kind", "most"), [(INT8, 0.009), (INT4, 0.12)], ids=["int8", "int4"])
@pytest.mark.parametrize("columns", [512, 70])
def test_floats_are_rounded_to_blocks(kind: int, most: float, columns: int) -> None:
    matrix, x = random(50, columns), random(7, columns, seed=1)
    weight = NativeOps(2).rounded_weight(kind, matrix)
    rows = weight.rows(torch.arange(50))
    assert (rows - matrix).norm() / matrix.norm() < most
    expected = x.double() @ rows.double().T
    assert (weight.linear(x) - expected).norm() / expected.norm() < 0.01


def test_weights_that_are_not_finite_are_not_rounded() -> None:
    matrix = random(20, 64)
    matrix[3, 3] = float("inf")
    with pytest.raises(InvalidConfig, match="not finite"):
        NativeOps(1).rounded_weight(INT8, matrix)
