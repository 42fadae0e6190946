"""Norms, activation, rotation, caps and argmax, row by row, on every instruction set this processor has."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import ACTIVATIONS, CLAMP, STEEPNESS
from chairlift.runner.native import library
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.ops import Adding, Attention, Batch, Norm
from chairlift.runner.torch.ops import TorchOps

pytestmark = pytest.mark.skipif(not available(), reason="the kernels are not built or not for this processor")

DTYPES = [torch.bfloat16, torch.float32]
TOLERANCE = {torch.bfloat16: 8e-3, torch.float32: 2e-6}


@pytest.fixture(params=[-1, library.HAS_AVX2, 0], ids=["best", "avx2", "baseline"], scope="module", autouse=True)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[None]:
    kernels = library.load()
    assert kernels is not None
    kernels.chairlift_features(request.param)
    yield
    kernels.chairlift_features(-1)


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def random_gain(width: int, seed: int = 1) -> Tensor:
    return random(width, dtype=torch.float32, seed=seed)


def norm(x: Tensor, gain: Tensor, eps: float = 1e-5) -> Tensor:
    x = x.float()
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def activated(x: Tensor, activation: str) -> Tensor:
    gate, up = x.float().chunk(2, dim=-1)
    if activation == "silu":
        return gate * torch.sigmoid(gate) * up
    if activation == "clamped":
        gate = gate.clamp(max=CLAMP)
        return gate * torch.sigmoid(STEEPNESS * gate) * (up.clamp(-CLAMP, CLAMP) + 1)
    return 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) * up


def close(actual: Tensor, expected: Tensor) -> None:
    tolerance = TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual.float(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "rows"), [(1, 1), (1, 200), (16, 5), (37, 1), (37, 200), (576, 5), (2048, 1)])
def test_a_norm_divides_by_the_root_mean_square(dtype: torch.dtype, width: int, rows: int) -> None:
    x, gain = random(rows, width, dtype=dtype), random_gain(width)
    close(NativeOps(2).norm(x, Norm(gain, 1e-5)), norm(x, gain))


@given(dtype=st.sampled_from(DTYPES), width=st.integers(1, 700), rows=st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_rows_of_any_width_are_normed_added_and_activated(dtype: torch.dtype, width: int, rows: int) -> None:
    x, residual, gain = random(rows, width, dtype=dtype), random(rows, width, dtype=dtype, seed=1), random_gain(width)
    close(NativeOps(2).norm(x, Norm(gain, 1e-5)), norm(x, gain))
    normed, summed = NativeOps(2).add_norm(x.clone(), residual.clone(), Norm(gain, 1e-5))
    assert torch.equal(summed, x + residual)
    close(normed, norm(x + residual, gain))
    halves = torch.cat((x, residual), dim=1) * 5
    for activation in ACTIVATIONS:
        close(NativeOps(2).activate(halves, activation), activated(halves, activation))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [16, 37, 576])
def test_adding_and_norming_gives_both_the_norm_and_the_sum(dtype: torch.dtype, width: int) -> None:
    x, residual = random(40, width, dtype=dtype), random(40, width, dtype=dtype, seed=1)
    gain, total = random_gain(width, seed=2), x + residual
    normed, summed = NativeOps(2).add_norm(x.clone(), residual.clone(), Norm(gain, 1e-5))
    assert torch.equal(summed, total)
    close(normed, norm(total, gain))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("has_gain", "width"), [(False, 16), (False, 37), (True, 37), (True, 576)])
def test_a_factor_scales_what_is_added_and_without_a_gain_the_sum_is_all(
    dtype: torch.dtype, has_gain: bool, width: int
) -> None:
    x, residual = random(40, width, dtype=dtype), random(40, width, dtype=dtype, seed=1)
    gain, total = random_gain(width) if has_gain else None, (x.float() * 0.22 + residual.float()).to(dtype)
    wanted = None if gain is None else Norm(gain, 1e-5)
    normed, summed = NativeOps(2).add_norm(x.clone(), residual.clone(), wanted, Adding(0.22))
    assert torch.equal(summed, total)
    if gain is None:
        assert torch.equal(normed, total)
    else:
        close(normed, norm(total, gain))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("has_bias", "width"), [(False, 16), (False, 37), (True, 37), (True, 576)])
def test_a_centred_norm_is_torch_s_layer_norm(dtype: torch.dtype, has_bias: bool, width: int) -> None:
    x, residual = 3 + random(40, width, dtype=dtype), random(40, width, dtype=dtype, seed=1)
    gain, bias, total = random_gain(width), random_gain(width, seed=5) if has_bias else None, x + residual
    normed, summed = NativeOps(2).add_norm(x.clone(), residual.clone(), Norm(gain, 1e-5, bias, is_centred=True))
    assert torch.equal(summed, total)
    close(normed, torch.nn.functional.layer_norm(total.float(), (width,), gain, bias, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "activation"), [(8, "silu"), (37, "gelu_tanh"), (37, "silu"), (1536, "gelu_tanh")])
def test_an_activation_without_a_gate_is_that_of_all(dtype: torch.dtype, width: int, activation: str) -> None:
    x = random(40, width, dtype=dtype) * 5
    alone = NativeOps(2).activate(x, activation, has_gate=False)
    close(alone, activated(torch.cat((x, torch.ones_like(x)), dim=1), activation))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [37, 1536])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_multiplies_the_halves(dtype: torch.dtype, width: int, activation: str) -> None:
    x = random(40, 2 * width, dtype=dtype) * 5
    close(NativeOps(2).activate(x, activation), activated(x, activation))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_of_large_numbers_stays_finite(activation: str) -> None:
    gate = torch.tensor([[1e4, -1e4, 300.0, -300.0, 88.5, -88.5, 0.0, -0.0]])
    x = torch.cat((gate, torch.ones_like(gate)), dim=1)
    torch.testing.assert_close(NativeOps(1).activate(x, activation), TorchOps().activate(x, activation))


@pytest.mark.parametrize("width", [1, 37, 49152])
def test_logits_are_capped(width: int) -> None:
    logits = random(9, width, dtype=torch.float32) * 60
    expected = (30 * torch.tanh(logits.double() / 30)).float()
    torch.testing.assert_close(NativeOps(2).cap(logits.clone(), 30.0), expected, rtol=2e-6, atol=2e-5)


def test_huge_logits_become_the_cap_and_a_nan_stays() -> None:
    logits = torch.tensor([[torch.inf, -torch.inf, 1e30, -1e30, 0.0, torch.nan, -torch.nan]])
    capped = NativeOps(1).cap(logits, 30.0)[0]
    assert capped[:5].tolist() == [30.0, -30.0, 30.0, -30.0, 0.0]
    assert capped[5:].isnan().all()


def test_bf16_results_are_rounded_to_the_nearest_even() -> None:
    x = torch.tensor([[1.0, 1.0, 1.0, 1.0]]).bfloat16()
    residual = torch.tensor([[2**-8, 3 * 2**-8, 2**-8 + 2**-12, -(2**-9)]]).bfloat16()
    expected = (x.float() + residual.float()).bfloat16()
    _, total = NativeOps(1).add_norm(x.clone(), residual.clone(), Norm(torch.ones(4), 1e-5))
    assert torch.equal(total, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("head_dim", "heads", "kv_heads", "block_size", "has_gains"),
    [(16, 9, 3, 16, False), (16, 4, 4, 1, True), (64, 4, 4, 1, False), (64, 8, 1, 2, True), (80, 8, 1, 2, False),
     (80, 9, 3, 16, True), (128, 4, 4, 1, True), (128, 9, 3, 16, False)],
)  # fmt: skip
def test_queries_and_keys_are_rotated_and_keys_and_values_stored(
    dtype: torch.dtype, head_dim: int, heads: int, kv_heads: int, block_size: int, has_gains: bool
) -> None:
    rows, num_blocks = 11, 64 // block_size
    qkv = random(rows, (heads + 2 * kv_heads) * head_dim, dtype=dtype)
    angles = torch.outer(torch.arange(100.0), 0.9 ** torch.arange(head_dim // 2))
    rotation = torch.cat((angles.cos(), angles.sin()), dim=-1)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    positions, slots = torch.arange(30, 30 + rows), order[:rows]
    q_gain, k_gain = (random_gain(head_dim, seed=s) if has_gains else None for s in (2, 3))
    spec = AttentionSpec(
        num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, scale=head_dim**-0.5, rotation=None,
        has_qk_norm=has_gains,
    )  # fmt: skip
    attention = Attention(spec, rotation, q_gain, k_gain, 1e-5)
    keys = torch.zeros(num_blocks, kv_heads, block_size, head_dim, dtype=dtype)
    values = torch.zeros_like(keys)
    none = torch.empty(0)
    batch = Batch(none, positions, slots, none, none, none, 0, 0, none)
    q, k, v = qkv.view(rows, -1, head_dim).split([heads, kv_heads, kv_heads], dim=1)
    v = v.clone()

    def rotate(x: Tensor, gain: Tensor | None) -> Tensor:
        x = x.float() if gain is None else norm(x, gain)
        first, second = x.chunk(2, dim=-1)
        cos, sin = rotation[positions].unsqueeze(1).chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    expected_q, expected_k = rotate(q, q_gain), rotate(k, k_gain)
    close(NativeOps(2).rotate_and_store(qkv, attention, keys, values, batch), expected_q)
    close(keys[slots // block_size, :, slots % block_size], expected_k)
    assert torch.equal(values[slots // block_size, :, slots % block_size], v)
    unused = order[rows:]
    assert not keys[unused // block_size, :, unused % block_size].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("is_wide", "has_factors"), [(True, False), (False, True), (True, True)])
def test_norms_over_all_heads_and_factors_of_queries_come_before_rotation(
    dtype: torch.dtype, is_wide: bool, has_factors: bool
) -> None:
    rows, heads, kv_heads, dim = 9, 6, 2, 16
    qkv = random(rows, (heads + 2 * kv_heads) * dim, dtype=dtype)
    spec = AttentionSpec(
        num_heads=heads, num_kv_heads=kv_heads, head_dim=dim, scale=0.25, rotation=None, has_wide_qk_norm=is_wide
    )
    gains = [random_gain(count * dim, seed=count) if is_wide else None for count in (heads, kv_heads)]
    factors = 1 + torch.arange(50) / 20 if has_factors else None
    attention = Attention(spec, random(50, dim, dtype=torch.float32, seed=3), *gains, 1e-5, factors)
    positions, none = torch.arange(20, 20 + rows), torch.empty(0)
    batch = Batch(none, positions, torch.arange(rows), none, none, none, 0, 0, none)
    found = []
    for ops in (NativeOps(2), TorchOps()):
        keys, values = (torch.zeros(3, kv_heads, 4, dim, dtype=dtype) for _ in range(2))
        found.append((ops.rotate_and_store(qkv.clone(), attention, keys, values, batch), keys, values))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours.float(), expected.float(), atol=4 * TOLERANCE[dtype], rtol=4 * TOLERANCE[dtype])


@pytest.mark.parametrize("width", [1, 63, 64, 65, 1000, 49152])
def test_argmax_is_the_first_of_the_largest(width: int) -> None:
    logits = torch.randint(0, 50, (9, width), generator=torch.Generator().manual_seed(width)).float()
    logits[3] = -torch.inf
    logits[4] = torch.inf
    assert NativeOps(2).argmax(logits).tolist() == [row.index(max(row)) for row in logits.tolist()]


def test_a_row_with_a_nan_has_no_argmax() -> None:
    logits = torch.zeros(3, 1000)
    logits[1, 999] = torch.nan
    assert NativeOps(2).argmax(logits).tolist() == [0, -1, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_have_the_same_bits_in_every_batch(dtype: torch.dtype) -> None:
    ops, x, gain = NativeOps(2), random(70, 1154, dtype=dtype), random_gain(1154)
    residual, norms = random(70, 1154, dtype=dtype, seed=2), ops.norm(x, Norm(gain, 1e-5))
    products = {activation: ops.activate(x, activation) for activation in ACTIVATIONS}
    sums = ops.add_norm(x.clone(), residual.clone(), Norm(gain, 1e-5), Adding(0.22))
    for rows in (1, 2, 7, 33, 69):
        last = slice(70 - rows, 70)
        assert torch.equal(ops.norm(x[:rows], Norm(gain, 1e-5)), norms[:rows])
        for activation, whole in products.items():
            assert torch.equal(ops.activate(x[last], activation), whole[last])
        part = ops.add_norm(x[last].clone(), residual[last].clone(), Norm(gain, 1e-5), Adding(0.22))
        assert torch.equal(part[0], sums[0][last]) and torch.equal(part[1], sums[1][last])


def test_capped_logits_have_the_same_bits_in_every_batch() -> None:
    ops, logits = NativeOps(2), random(40, 1001, dtype=torch.float32) * 40
    whole = ops.cap(logits.clone(), 30.0)
    for rows in (1, 3, 39):
        assert torch.equal(ops.cap(logits[40 - rows :].clone(), 30.0), whole[40 - rows :])
