"""Weights in fp8 against torch, in Triton's interpreter."""

import os

import pytest
import torch
from torch import Tensor

from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.products.fp8 import Fp8Weight, round_rows
from chairlift.runner.weights.assemble import WeightFormat, build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.worlds.models import CONFIG

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("fp8_rounding"),
]


def rounded(x: Tensor) -> Tensor:
    """Each row to the nearest numbers that fp8 has when its largest is scaled to 448."""
    scales = x.float().abs().amax(dim=1, keepdim=True) / 448
    return (x.float() / scales).to(torch.float8_e4m3fn).float() * scales


@pytest.mark.parametrize("width", [16, 100, 3000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_are_rounded_each_by_its_own_scale(width: int, dtype: torch.dtype) -> None:
    x = (torch.randn(6, width) * 10.0 ** torch.arange(-3, 3)[:, None]).to(dtype)
    got, scales = round_rows(x)
    assert (got.dtype, scales.dtype, scales.shape) == (torch.float8_e4m3fn, torch.float32, (6, 1))
    torch.testing.assert_close(scales[:, 0] * 448, x.float().abs().amax(dim=1))
    torch.testing.assert_close(got.float() * scales, rounded(x))
    # Half a step of three bits; at the lower end half a step of 2**-9 of the scale.
    assert ((got.float() * scales - x.float()).abs() <= x.float().abs() / 16 + scales * 2**-10).all()


def test_a_row_of_zeros_stays_one_and_what_is_no_number_stays_none() -> None:
    x = torch.zeros(2, 32)
    x[1, 3] = torch.nan
    got, scales = round_rows(x)
    assert (got[0].float() == 0).all() and scales.isfinite()[0]
    assert (got[1].float() * scales[1])[3].isnan()


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_rows", [2, 5, 16, 33])
def test_many_rows_are_rounded_before_they_are_multiplied(num_rows: int, has_bias: bool) -> None:
    x, matrix, bias = torch.randn(num_rows, 64).bfloat16(), torch.randn(48, 64).bfloat16(), torch.randn(48).bfloat16()
    want = rounded(x) @ rounded(matrix).t() + (bias.float() if has_bias else 0.0)
    got = Fp8Weight(matrix, bias if has_bias else None).linear(x)
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got.float(), want, atol=0.05, rtol=1e-2)


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_single_row_is_multiplied_as_it_is(has_bias: bool) -> None:
    x, matrix, bias = torch.randn(1, 64).bfloat16(), torch.randn(48, 64).bfloat16(), torch.randn(48).bfloat16()
    want = x.float() @ rounded(matrix).t() + (bias.float() if has_bias else 0.0)
    got = Fp8Weight(matrix, bias if has_bias else None).linear(x)
    torch.testing.assert_close(got.float(), want, atol=0.02, rtol=1e-2)


def test_only_the_matrices_of_layers_are_kept_in_fp8() -> None:
    cpu = torch.device("cpu")
    model = build_model(
        CONFIG, CudaOps(), DummyTensors(CONFIG), torch.bfloat16, cpu, 64, WeightFormat(layers=Fp8Weight)
    )
    for layer in model.layers:
        assert {type(w) for w in (layer.weights["qkv"], layer.output, layer.gate_up, layer.down)} == {Fp8Weight}
    plain = build_model(CONFIG, CudaOps(), DummyTensors(CONFIG), torch.bfloat16, cpu, 64)
    tokens = torch.arange(5)
    assert torch.equal(model.embedding.rows(tokens), plain.embedding.rows(tokens))
    hidden = torch.randn(5, CONFIG.hidden_size).bfloat16()
    assert torch.equal(model.head.logits(hidden), plain.head.logits(hidden))
