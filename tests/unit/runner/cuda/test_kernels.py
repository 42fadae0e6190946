"""The Triton kernels against torch's operations, in Triton's interpreter: no GPU needed."""

import os
from dataclasses import replace

import pytest
import torch

from chairlift.models.spec import ACTIVATIONS
from chairlift.runner.cuda.attention.tiling import choose_tiling
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.products.one_row import one_row
from chairlift.runner.cuda.step.layout import QUERIES
from chairlift.runner.ops import Adding, Attention, Norm
from chairlift.runner.torch.ops import TorchOps
from fakes.steps import Case

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)


def check(
    case: Case, window: int = 0, has_norm: bool = False, cap: float = 0.0, has_sinks: bool = False, exact: bool = False
) -> None:
    attention = case.attention(window, has_norm, cap, has_sinks)
    got, want = case.run(CudaOps(exact), attention), case.run(TorchOps(), attention)
    for name, a, b in zip(("queries", "keys", "values", "attention"), got, want, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("cap", [0.0, 0.7])
def test_decodes_and_short_prompts_are_answered_row_by_row(
    heads: int, kv_heads: int, has_norm: bool, cap: float
) -> None:
    check(Case([(10, 1), (3, 1), (0, 7)], heads, kv_heads, dim=16, size=16), has_norm=has_norm, cap=cap)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize(("window", "cap"), [(0, 0.0), (50, 0.0), (200, 0.0), (50, 0.7)])
@pytest.mark.parametrize("num_decodes", [1, 14])
def test_long_contexts_are_split_and_joined(kv_heads: int, window: int, cap: float, num_decodes: int) -> None:
    split = choose_tiling(num_decodes + 3, 300, kv_heads != 2).split
    decodes = [(2 * split + 40, 1), (split - 1, 1), *[(3, 1)] * 12][:num_decodes]
    spans = [*decodes, (split, 3)]
    check(Case(spans, 2, kv_heads, dim=16, size=16), window, cap=cap)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "tiled"), [(2, 2, False), (4, 2, False), (4, 2, True)])
def test_sinks_take_their_share_once(heads: int, kv_heads: int, tiled: bool, exact: bool) -> None:
    case = Case([(130, 1), (3, 1), (40, QUERIES + 3 if tiled else 2)], heads, kv_heads, dim=16, size=16, tiled=tiled)
    if exact:
        case.cuda = replace(case.cuda, tiling=choose_tiling(3, 150, heads != kv_heads, exact=True))
    check(case, window=50, has_sinks=True, exact=exact)


@pytest.mark.parametrize("width", [64, 2048, 5000])
@pytest.mark.parametrize("has_bias", [False, True])
def test_one_row_is_multiplied(width: int, has_bias: bool) -> None:
    x, matrix = torch.randn(1, width).bfloat16(), torch.randn(7, width).bfloat16()
    bias = torch.randn(7).bfloat16() if has_bias else None
    want = x.float() @ matrix.float().t() + (bias.float() if bias is not None else 0.0)
    got = one_row(x, matrix, bias, torch.float32)
    torch.testing.assert_close(got, want, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(CudaOps().weight(matrix, bias).linear(x), want.bfloat16(), atol=1e-2, rtol=1e-2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("window", "cap"), [(0, 0.0), (20, 0.0), (20, 0.7)])
@pytest.mark.parametrize("size", [1, 4])
def test_long_prompts_are_answered_in_tiles(window: int, cap: float, size: int) -> None:
    check(Case([(30, 1), (40, QUERIES + 9)], 4, 2, dim=16, size=size, tiled=True), window, cap=cap)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2)])
def test_fp8_keeps_what_it_can_express_and_clips_what_is_beyond(heads: int, kv_heads: int) -> None:
    case = Case([(9, 1), (0, 7)], heads, kv_heads, dim=16, size=4)
    case.rotation[:, :8], case.rotation[:, 8:] = 1.0, 0.0  # by nothing
    # Numbers of fp8 and one that is beyond: the interpreter does not round as a GPU does.
    case.qkv = (case.qkv * 100).to(torch.float8_e4m3fn).float().where(case.qkv.abs() < 2, 1000 * case.qkv.sign())
    _, keys, values, _ = case.run(TorchOps())
    case.keys, case.values = case.keys.to(torch.float8_e4m3fn), case.values.to(torch.float8_e4m3fn)
    _, kept_keys, kept_values, _ = case.run(CudaOps())
    for kept, exact in ((kept_keys, keys), (kept_values, values)):
        assert exact.abs().max() == 1000
        torch.testing.assert_close(kept.float(), exact.clamp(-448, 448).to(kept.dtype).float(), atol=0, rtol=0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2)])
def test_attention_reads_what_fp8_has_kept(heads: int, kv_heads: int, tiled: bool) -> None:
    case = Case([(70, 1), (3, QUERIES + 9 if tiled else 9)], heads, kv_heads, dim=16, size=16, tiled=tiled)
    case.keys, case.values = case.keys.to(torch.float8_e4m3fn), case.values.to(torch.float8_e4m3fn)
    q, keys, values, got = case.run(CudaOps())
    want = TorchOps().attention(q, case.attention().spec, keys.float(), values.float(), case.plain)
    torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)


def test_padding_touches_nothing() -> None:
    case = Case([(5, 1), (9, 1)], 4, 4, dim=16, size=4)
    before = case.run(CudaOps())
    batch = case.cuda
    batch.positions[1] = batch.slots[1] = batch.short_positions[1] = -1
    _, keys, values, out = case.run(CudaOps())
    torch.testing.assert_close(out[0], before[3][0], atol=0, rtol=0)
    written = (keys != case.keys).any(dim=(1, 3)).sum() + (values != case.values).any(dim=(1, 3)).sum()
    assert int(written) == 2  # the key and the value of the first token, and nothing of the padding


@pytest.mark.parametrize("width", [64, 100, 576])
def test_the_norm_adds_and_scales(width: int) -> None:
    x, residual, gain = torch.randn(5, width), torch.randn(5, width), torch.rand(width)
    got = CudaOps().add_norm(x.clone(), residual.clone(), Norm(gain, 1e-5))
    want = TorchOps().add_norm(x.clone(), residual.clone(), Norm(gain, 1e-5))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("has_gain", [False, True])
def test_a_factor_scales_what_is_added_and_without_a_gain_the_sum_is_all(has_gain: bool) -> None:
    x, residual, gain = torch.randn(5, 100), torch.randn(5, 100), torch.rand(100) if has_gain else None
    norm = None if gain is None else Norm(gain, 1e-5)
    got, want = (ops.add_norm(x.clone(), residual.clone(), norm, Adding(0.22)) for ops in (CudaOps(), TorchOps()))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("has_norm", [False, True])
def test_what_is_added_may_have_norms_and_the_sum_a_scale(has_norm: bool) -> None:
    x, residual = torch.randn(5, 100), torch.randn(5, 100)
    norm, after, base = (Norm(torch.rand(100), 1e-5) for _ in range(3))
    adding = Adding(0.3, after, 1.7, base)
    got, want = (
        ops.add_norm(x.clone(), residual.clone(), norm if has_norm else None, adding) for ops in (CudaOps(), TorchOps())
    )
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(list(CudaOps().norms(x, (norm, after))), list(TorchOps().norms(x, (norm, after))))


@pytest.mark.parametrize("num_rows", [1, 3])
def test_the_activation_is_multiplied_by_numbers_of_wider_rows(num_rows: int) -> None:
    x, matrix = torch.randn(num_rows, 100).bfloat16(), 0.1 * torch.randn(64, 100).bfloat16()
    times = torch.randn(num_rows, 2, 64).bfloat16()[:, 1]
    got, want = (ops.activated(ops.weight(matrix), x, "gelu_tanh", times) for ops in (CudaOps(), TorchOps()))
    torch.testing.assert_close(got, want, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_centred", [False, True])
def test_a_norm_may_be_centred_and_have_a_bias(is_centred: bool, has_bias: bool) -> None:
    x, residual, gain, bias = 3 + torch.randn(5, 100), torch.randn(5, 100), torch.rand(100), torch.randn(100)
    norm = Norm(gain, 1e-5, bias if has_bias else None, is_centred)
    got, want = (ops.add_norm(x.clone(), residual.clone(), norm) for ops in (CudaOps(), TorchOps()))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(("is_wide", "has_factors"), [(True, False), (False, True)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2)])
def test_norms_over_all_heads_and_factors_of_queries_come_before_rotation(
    heads: int, kv_heads: int, is_wide: bool, has_factors: bool
) -> None:
    case = Case([(9, 1), (0, 7)], heads, kv_heads, dim=16, size=4)
    plain = case.attention()
    gains = [torch.rand(count * 16) if is_wide else None for count in (heads, kv_heads)]
    factors = 1 + torch.arange(len(case.rotation)) / 5 if has_factors else None
    spec = replace(plain.spec, has_wide_qk_norm=is_wide)
    attention = Attention(spec, plain.rotation, *gains, 1e-5, factors)
    found = []
    for ops, batch in ((CudaOps(), case.cuda), (TorchOps(), case.plain)):
        keys, values = case.keys.clone(), case.values.clone()
        found.append((ops.attend(case.qkv.clone(), attention, keys, values, batch), keys, values))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("width", [64, 100])
def test_the_norm_alone_leaves_what_it_is_of(width: int) -> None:
    x, gain = torch.randn(5, width), torch.rand(width)
    before = x.clone()
    torch.testing.assert_close(CudaOps().norm(x, Norm(gain, 1e-5)), TorchOps().norm(x, Norm(gain, 1e-5)))
    assert torch.equal(x, before)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # of numpy: the quotient is 0 then
def test_the_activation_multiplies_the_halves(activation: str) -> None:
    gate_up = 3 * torch.randn(3, 2 * 1500)
    torch.testing.assert_close(CudaOps().activate(gate_up, activation), TorchOps().activate(gate_up, activation))


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_without_a_gate_the_activation_is_that_of_all(activation: str) -> None:
    x = 3 * torch.randn(3, 1500)
    got, want = (ops.activate(x, activation, has_gate=False) for ops in (CudaOps(), TorchOps()))
    torch.testing.assert_close(got, want)


def test_logits_are_capped() -> None:
    logits = 40 * torch.randn(3, 1500)
    got, want = (ops.cap(logits.clone(), 30.0) for ops in (CudaOps(), TorchOps()))
    torch.testing.assert_close(got, want, atol=2e-5, rtol=2e-6)


def test_a_logit_that_is_no_number_stays_none() -> None:
    logits = torch.tensor([[torch.nan, 0.0]])
    assert CudaOps().cap(logits, 30.0).isnan().tolist() == [[True, False]]
