"""Matrices that stay packed on a GPU, in Triton's interpreter: each widens to what its format's maker says."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.spec import ExpertsSpec, FeedForwardSpec, Quantisation
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.products import packed as packed_module
from chairlift.runner.cuda.products.fp8 import StoredFp8Weight
from chairlift.runner.cuda.products.packed import Packed, PackedWeight, pack, pack_all
from chairlift.runner.ops import Experts
from chairlift.runner.weights.source import Stored
from unit.runner.weights.test_quantised import FORMATS, IN, OUT, drawn, spread, stream, written

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)


def packed(folder: Path, name: str) -> tuple[Packed, torch.Tensor]:
    pack_format, said = FORMATS[name]
    tensors, expected = pack_format()
    stored = written(folder, tensors, said).stored("m.weight", (OUT, IN))
    assert stored is not None
    return pack(stored), expected.float()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_matrix_widens_to_the_numbers_that_its_tensors_stand_for(
    tmp_path: Path, name: str, dtype: torch.dtype
) -> None:
    part, expected = packed(tmp_path, name)
    out = torch.empty(OUT, IN, dtype=dtype)
    part.widen(out)
    near = torch.finfo(dtype).eps if name == "bitsandbytes-int8" else 0.0  # a product of three, rounded once more
    torch.testing.assert_close(out, expected.to(dtype), rtol=near, atol=0)


@pytest.mark.parametrize("num_rows", [1, 5])
def test_a_product_is_that_of_the_numbers(tmp_path: Path, num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of parts that are stored in different ways, at once and in stretches."""
    x, bias, wide = torch.randn(num_rows, IN), torch.randn(3 * OUT), []
    stored = []
    for name in ("awq", "words-4", "nvfp4"):
        pack_format, said = FORMATS[name]
        tensors, expected = pack_format()
        (tmp_path / name).mkdir()
        stored.append(written(tmp_path / name, tensors, said).stored("m.weight", (OUT, IN)))
        wide.append(expected.float())
    assert len(pack_all(stored)) == 3 and len(pack_all([stored[0]] * 3)) == 1
    ops = CudaOps()
    expected = torch.nn.functional.linear(x, torch.cat(wide), bias)
    weights = [ops.stored_weight(stored, bias, torch.float32)]
    monkeypatch.setattr(packed_module, "MOST_WIDENED", 40 * IN)
    weights.append(ops.stored_weight(stored, bias, torch.float32))
    for weight in weights:
        assert isinstance(weight, PackedWeight)
        torch.testing.assert_close(weight.linear(x), expected)
        torch.testing.assert_close(weight.logits(x), expected)
    ids = torch.tensor([5, 0, 5])
    assert torch.equal(ops.stored_weight(stored[:1], None, torch.float32).rows(ids), wide[0][ids])


@pytest.mark.parametrize(("name", "is_of_rows"), [("fp8-rows", True), ("fp8-tensor", True), ("fp8-blocks", False)])
def test_fp8_with_a_scale_a_row_is_multiplied_as_bytes(tmp_path: Path, name: str, is_of_rows: bool) -> None:
    pack_format, said = FORMATS[name]
    tensors, expected = pack_format()
    stored = written(tmp_path, tensors, said).stored("m.weight", (OUT, IN))
    weight = CudaOps(fp8=True).stored_weight([stored], None, torch.bfloat16)
    assert isinstance(weight, StoredFp8Weight) is is_of_rows
    assert isinstance(CudaOps(exact=True, fp8=True).stored_weight([stored], None, torch.bfloat16), PackedWeight)
    x = torch.randn(1, IN).bfloat16()
    torch.testing.assert_close(weight.linear(x).float(), x.float() @ expected.float().t(), atol=0.05, rtol=0.02)


def test_bytes_that_are_no_numbers_are_refused_by_name(tmp_path: Path) -> None:
    tensors, _ = FORMATS["fp8-rows"][0]()
    tensors["weight"].view(torch.uint8)[3, 7] = 0xFF
    stored = written(tmp_path, tensors, Quantisation()).stored("m.weight", (OUT, IN))
    with pytest.raises(InvalidConfig, match="matrix m: weight holds values that are not finite numbers") as caught:
        pack(stored)
    assert str(caught.value).startswith(str(tmp_path))


@pytest.mark.parametrize("num_rows", [2, 40])
def test_experts_that_rows_chose_are_widened(tmp_path: Path, num_rows: int) -> None:
    tensors, expected = FORMATS["words-zeros"][0]()
    one = written(tmp_path, tensors, Quantisation()).stored("m.weight", (OUT, IN))
    square = replace(one, tensors=tuple(each.repeat(2, *[1] * (each.dim() - 1)) for each in one.tensors))
    spec = FeedForwardSpec(width=OUT, experts=ExpertsSpec(count=4, num_chosen=2))
    down_tensors, down_wide = _columns_of_64()
    (tmp_path / "down").mkdir()
    down = written(tmp_path / "down", down_tensors, Quantisation()).stored("m.weight", (IN, OUT))
    of_each = [
        Stored("", each.kind, tuple(t[None].repeat(4, *[1] * t.dim()) for t in each.tensors), (4, *shape), each.group)
        for each, shape in ((square, (2 * OUT, IN)), (down, (IN, OUT)))
    ]
    ops, router = CudaOps(), torch.randn(4, IN)
    packed_ones = [ops.stored_experts([each], None, torch.float32) for each in of_each]
    plain = [
        ops.expert_weight(each.repeat(4, 1, 1))
        for each in (expected.float().repeat(2, 1), down_wide.float())
    ]  # fmt: skip
    x = torch.randn(num_rows, IN)
    got, want = (ops.experts(x, Experts(spec, ops.weight(router), None, *both), None) for both in (packed_ones, plain))
    assert torch.equal(got, want)


def _columns_of_64() -> tuple[dict[str, Tensor], Tensor]:
    numbers = drawn(0, 16, IN, OUT)
    scales = torch.full((IN, OUT // 32), 0.01, dtype=torch.bfloat16)
    tensors = {"weight_packed": stream(numbers, 4), "weight_scale": scales}
    return tensors, (numbers - 8) * spread(scales.float())
