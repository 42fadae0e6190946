"""Quantised matrices of safetensors: tensors packed here as each format has them give the numbers that they mean."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.files.hf import load_hf
from chairlift.models.shards import Cut
from chairlift.models.source import Source
from chairlift.models.spec import Quantisation
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.start.load import load_runner
from chairlift.runner.weights.assemble import WeightFormat, build_model
from chairlift.runner.weights.hf import HfTensors
from chairlift.runner.weights.source import part_of
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, run

OUT, IN, GROUP = 64, 128, 32
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
Packed = tuple[dict[str, Tensor], Tensor]  # tensors by role, and the numbers


def drawn(low: int, high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def scales_of(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(9)) * 0.01 + 0.001).to(dtype)


def stream(numbers: Tensor, bits: int) -> Tensor:
    """[rows, n] -> int32 [rows, n * bits / 32], the lowest bit of the first number first."""
    words = []
    for row in numbers.tolist():
        whole = sum(number << bits * i for i, number in enumerate(row))
        words.append([whole >> 32 * i & 0xFFFFFFFF for i in range(-(-len(row) * bits // 32))])
    return torch.from_numpy(np.array(words, np.uint32).view(np.int32))


def spread(groups: Tensor, size: int = GROUP) -> Tensor:
    return groups.repeat_interleave(size, -1)


def awq() -> Packed:
    numbers, zeros = drawn(0, 16, OUT, IN), drawn(0, 16, OUT, IN // GROUP, seed=1)
    scales, order = scales_of(OUT, IN // GROUP), [0, 2, 4, 6, 1, 3, 5, 7]

    def words(columns: Tensor) -> Tensor:  # [rows, out] -> [rows, out / 8]
        return stream(columns.unflatten(1, (-1, 8))[..., order].flatten(1), 4)

    tensors = {"qweight": words(numbers.t()), "qzeros": words(zeros.t()), "scales": scales.t().contiguous()}
    return tensors, (numbers - spread(zeros)) * spread(scales.float())


def gptq(bits: int, is_v1: bool = True, has_order: bool = False) -> Packed:
    numbers, zeros = drawn(0, 1 << bits, OUT, IN), drawn(0, 1 << bits, OUT, IN // GROUP, seed=1)
    scales = scales_of(OUT, IN // GROUP)
    order = torch.randperm(IN, generator=torch.Generator().manual_seed(2)) // GROUP
    groups = order if has_order else torch.arange(IN) // GROUP
    tensors = {
        "qweight": stream(numbers, bits).t().contiguous(),
        "qzeros": stream((zeros.t() - int(is_v1)) % (1 << bits), bits),
        "scales": scales.t().contiguous(),
    } | ({"g_idx": groups.int()} if has_order else {})
    return tensors, (numbers - zeros[:, groups]) * scales.float()[:, groups]


def words(bits: int, is_symmetric: bool) -> Packed:
    numbers, zeros = drawn(0, 1 << bits, OUT, IN), drawn(0, 1 << bits, OUT, IN // GROUP, seed=1)
    scales = scales_of(OUT, IN // GROUP, dtype=torch.bfloat16)
    tensors = {"weight_packed": stream(numbers, bits), "weight_scale": scales, "weight_shape": torch.tensor([OUT, IN])}
    if is_symmetric:
        return tensors, (numbers - (1 << bits - 1)) * spread(scales.float())
    tensors["weight_zero_point"] = stream(zeros.t(), bits).t().contiguous()
    return tensors, (numbers - spread(zeros)) * spread(scales.float())


def int8(*shape: int) -> Packed:
    numbers, scales = drawn(-128, 128, OUT, IN).to(torch.int8), scales_of(*shape, dtype=torch.bfloat16)
    return {"weight": numbers, "weight_scale": scales}, numbers * spread(scales.float(), IN // shape[-1])


def fp8(*shape: int, role: str = "weight_scale", dtype: torch.dtype = torch.float32) -> Packed:
    numbers = torch.randn(OUT, IN, generator=torch.Generator().manual_seed(3)).to(torch.float8_e4m3fn)
    scales = scales_of(*shape, dtype=torch.float32)
    scales = torch.exp2(scales.log2().round()).to(dtype) if dtype is torch.float8_e8m0fnu else scales.to(dtype)
    wide = scales.float()
    if shape == (2, 4):  # of blocks of 48 x 32: the last are smaller
        wide = spread(wide).repeat_interleave(48, 0)[:OUT]
    elif len(shape) == 1 and shape[0] == OUT:
        wide = wide[:, None]
    return {"weight": numbers, role: scales, "input_scale": torch.ones(1)}, numbers.float() * wide


def halves(numbers: Tensor, low_first: bool = True) -> Tensor:
    first, second = numbers[:, ::2], numbers[:, 1::2]
    return (first | second << 4 if low_first else first << 4 | second).to(torch.uint8)


def nvfp4(is_modelopt: bool) -> Packed:
    numbers = drawn(0, 16, OUT, IN)
    scales = torch.rand(OUT, IN // 16, generator=torch.Generator().manual_seed(3)).mul_(300).to(torch.float8_e4m3fn)
    own = E2M1[numbers] * spread(scales.float(), 16)
    if is_modelopt:
        tensors = {"weight": halves(numbers), "weight_scale": scales, "weight_scale_2": torch.tensor(1.4e-4)}
        return tensors | {"input_scale": torch.tensor(1.0)}, own * torch.tensor(1.4e-4)
    tensors = {"weight_packed": halves(numbers), "weight_scale": scales, "weight_global_scale": torch.tensor([7232.0])}
    return tensors | {"input_global_scale": torch.ones(1)}, own / 7232.0


def mxfp4() -> Packed:
    numbers, powers = drawn(0, 16, OUT, IN), drawn(115, 125, OUT, IN // GROUP)
    tensors = {"weight_packed": halves(numbers), "weight_scale": powers.to(torch.uint8)}
    return tensors, E2M1[numbers] * spread(torch.exp2(powers - 127.0))


def nf4(is_nested: bool) -> Packed:
    numbers, table = drawn(0, 16, OUT, IN), torch.linspace(-1.0, 1.0, 16) ** 3
    state: dict[str, Any] = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [OUT, IN]}
    tensors = {"weight": halves(numbers, low_first=False).reshape(-1, 1), "weight.quant_map": table}
    largest = scales_of(OUT * IN // 64, dtype=torch.float32)
    if is_nested:
        bytes_ = drawn(0, 256, OUT * IN // 64, seed=4).to(torch.uint8)
        map_, nested = torch.linspace(-1.0, 1.0, 256), scales_of(1, dtype=torch.float32)
        state |= {"nested_blocksize": 256, "nested_offset": 0.03, "nested_dtype": "float32"}
        tensors |= {"weight.absmax": bytes_, "weight.nested_absmax": nested, "weight.nested_quant_map": map_}
        largest = map_[bytes_.int()] * nested + np.float32(0.03)
    else:
        tensors["weight.absmax"] = largest
    tensors["weight.quant_state.bitsandbytes__nf4"] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    return tensors, (table[numbers].view(-1, 64) * largest[:, None]).view(OUT, IN)


def scb() -> Packed:
    numbers, scales = drawn(-127, 128, OUT, IN).to(torch.int8), scales_of(OUT, dtype=torch.float32)
    tensors = {"weight": numbers, "SCB": scales, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return tensors, numbers * scales[:, None] * np.float32(1 / 127)


FORMATS: dict[str, tuple[Callable[[], Packed], Quantisation]] = {
    "awq": (awq, Quantisation(bits=4, group=GROUP)),
    **{f"gptq-{bits}": (lambda bits=bits: gptq(bits), Quantisation(bits=bits, group=GROUP)) for bits in (2, 3, 4, 8)},
    "gptq-v2": (lambda: gptq(4, is_v1=False), Quantisation(adds_one=False)),
    "gptq-order": (lambda: gptq(4, has_order=True), Quantisation(bits=4)),
    **{f"words-{bits}": (lambda bits=bits: words(bits, True), Quantisation(bits=bits)) for bits in (3, 4, 8)},
    "words-zeros": (lambda: words(4, False), Quantisation(group=GROUP)),
    "int8-rows": (lambda: int8(OUT, 1), Quantisation()),
    "int8-groups": (lambda: int8(OUT, IN // GROUP), Quantisation()),
    "fp8-blocks": (lambda: fp8(2, 4, role="weight_scale_inv"), Quantisation(block=(48, 32))),
    "fp8-powers": (
        lambda: fp8(2, 4, role="weight_scale_inv", dtype=torch.float8_e8m0fnu), Quantisation(block=(48, 32)),
    ),
    "fp8-rows": (lambda: fp8(OUT, 1, dtype=torch.bfloat16), Quantisation()),
    "fp8-rows-flat": (lambda: fp8(OUT), Quantisation()),
    "fp8-tensor": (lambda: fp8(1), Quantisation()),
    "fp8-scalar": (fp8, Quantisation()),
    "nvfp4": (lambda: nvfp4(False), Quantisation()),
    "nvfp4-modelopt": (lambda: nvfp4(True), Quantisation()),
    "mxfp4": (mxfp4, Quantisation()),
    "nf4": (lambda: nf4(False), Quantisation()),
    "nf4-nested": (lambda: nf4(True), Quantisation()),
    "bitsandbytes-int8": (scb, Quantisation()),
}  # fmt: skip


def written(folder: Path, tensors: dict[str, Tensor], said: Quantisation) -> HfTensors:
    save_file({f"m.{role}": tensor.contiguous() for role, tensor in tensors.items()}, folder / "model.safetensors")
    return HfTensors(folder, said)


@pytest.mark.parametrize("name", FORMATS)
def test_a_matrix_is_the_numbers_that_its_tensors_stand_for(tmp_path: Path, name: str) -> None:
    pack, said = FORMATS[name]
    tensors, expected = pack()
    source = written(tmp_path, tensors, said)
    assert set(source.names) == {"m.weight"}
    assert torch.equal(source.read("m.weight", (OUT, IN)), expected.float())
    cut = Cut("m.weight", (OUT, IN), 1, ((40, 70),))
    assert torch.equal(source.read("m.weight", (OUT, IN), cut), expected.float()[:, 40:70])


KINDS = {
    "awq": "W4", **{f"gptq-{bits}": "W8" if bits == 8 else "W4" for bits in (2, 3, 4, 8)}, "gptq-v2": "W4",
    "gptq-order": "W4", "words-3": "W4", "words-4": "W4", "words-8": "W8", "words-zeros": "W4", "int8-rows": "W8",
    "int8-groups": "W8", "bitsandbytes-int8": "W8",
    **{f"fp8-{each}": "FP8" for each in ("blocks", "powers", "rows", "rows-flat", "tensor", "scalar")},
    "nvfp4": "NVFP4", "nvfp4-modelopt": "NVFP4", "mxfp4": "MXFP4", "nf4": "NF4", "nf4-nested": "NF4",
}  # fmt: skip


@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
@pytest.mark.parametrize("name", FORMATS)
def test_a_matrix_is_handed_out_as_it_is_stored_and_integers_are_kept(tmp_path: Path, name: str) -> None:
    pack, said = FORMATS[name]
    tensors, expected = pack()
    stored = written(tmp_path, tensors, said).stored("m.weight", (OUT, IN))
    assert stored is not None
    assert (stored.kind, stored.shape) == (KINDS[name], (OUT, IN))
    if stored.kind in ("W4", "W8"):
        rows = NativeOps(1).stored_weight([stored], None, torch.float32).rows(torch.arange(OUT))
        is_near = name == "bitsandbytes-int8"  # a product of three numbers, rounded once more by its maker
        torch.testing.assert_close(rows, expected.float(), rtol=2e-7 if is_near else 0, atol=0)


@pytest.mark.parametrize(
    ("name", "dim", "span", "is_kept"),
    [
        ("awq", 1, (32, 96), True), ("awq", 1, (40, 70), False), ("awq", 0, (5, 20), True),
        ("int8-rows", 1, (3, 70), True), ("gptq-order", 1, (32, 96), False),
    ],
)  # fmt: skip
def test_a_rank_keeps_whole_groups(tmp_path: Path, name: str, dim: int, span: tuple[int, int], is_kept: bool) -> None:
    pack, said = FORMATS[name]
    tensors, expected = pack()
    cut = Cut("m.weight", (OUT, IN), dim, (span,))
    stored = written(tmp_path, tensors, said).stored("m.weight", (OUT, IN), cut)
    assert (stored is not None) == is_kept
    if stored is not None:
        own = (stored.tensors[0] - stored.tensors[2][..., None].float()) * stored.tensors[1][..., None]
        assert torch.equal(own.flatten(1), part_of(expected.float(), cut))


def test_groups_that_are_not_of_32_columns_are_widened(tmp_path: Path) -> None:
    source = written(tmp_path, int8(OUT, IN // 16)[0], Quantisation())
    assert source.stored("m.weight", (OUT, IN)) is None
    source.read("m.weight", (OUT, IN))
    assert source.widened == "1 of 1 quantised matrices are widened: 1 in int8"


MADE = load_file(Path(__file__).parents[3] / "data/quantised/made.safetensors")  # make.py there says how


@pytest.mark.parametrize("name", [name.removesuffix(".expected") for name in MADE if name.endswith(".expected")])
def test_what_the_formats_makers_wrote_is_what_they_widen_it_to(tmp_path: Path, name: str) -> None:
    expected = MADE[f"{name}.expected"]
    tensors = {role.removeprefix(f"{name}."): tensor for role, tensor in MADE.items() if role.startswith(f"{name}.")}
    del tensors["expected"]
    found = written(tmp_path, tensors, Quantisation(block=(8, 32))).read("m.weight", (16, 64))
    assert torch.equal(found.to(expected.dtype), expected)


def changed(role: str, change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], object]:
    return lambda tensors: tensors.update({role: change(tensors[role])})


def nan(tensor: Tensor) -> Tensor:
    return torch.full_like(tensor, torch.nan)


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("awq", changed("scales", nan), "matrix m: scales holds values that are not finite numbers"),
        ("awq", changed("scales", lambda t: t[:3]), "matrix m: scales has 3 groups, which do not divide 128 columns"),
        ("awq", lambda tensors: tensors.pop("qzeros"), "tensor m.qzeros is missing from the weights"),
        ("gptq-4", changed("scales", lambda t: t[0]), r"matrix m: scales has shape \[64\], which is no matrix"),
        ("awq", changed("qzeros", lambda t: t[:2]), r"matrix m: qzeros is int32 \[2, 8\], which does not fit \[4, 8\]"),
        ("awq", changed("qweight", lambda t: t[:64]), r"matrix m: qweight is int32 \[64, 8\], which does not fit"),
        ("awq", changed("qweight", Tensor.t), r"matrix m: qweight is int32 \[8, 128\], which does not fit"),
        ("words-4", changed("weight_scale", lambda t: t[:, :3]), "weight_scale has 3 groups, which do not divide 128"),
        ("words-4", changed("weight_scale", lambda t: t[:9]), r"weight_scale has shape \[9, 4\], not \[64, 4\]"),
        ("nvfp4", changed("weight_scale", lambda t: nan(t.float()).to(t.dtype)), "weight_scale holds values that are"),
        ("gptq-4", changed("qweight", lambda t: t[:8]), "has 2 bits, quantization_config says 4"),
        ("gptq-4", changed("qweight", lambda t: t[:3]), "qweight has 3 words for 128 columns, which is not 2 to 8"),
        ("gptq-4", changed("scales", lambda t: t[:2]), "has groups of 64, quantization_config says 32"),
        ("gptq-order", changed("g_idx", lambda t: t + 1), "g_idx names a group beyond the 4 that have scales"),
        ("words-4", changed("weight_shape", lambda t: t + 1), r"weight_shape must be \[64, 128\]"),
        ("fp8-blocks", changed("weight_scale_inv", lambda t: t[:1]), "which fits no rows, groups or blocks of"),
        ("fp8-rows", changed("weight", lambda t: t[:60]), r"weight is float8_e4m3fn \[60, 128\], which does not fit"),
        ("fp8-rows", changed("weight", Tensor.float), "weight is float32"),
        ("fp8-rows", changed("weight", lambda t: nan(t.float()).to(t.dtype)), "weight holds values that are not"),
        ("nf4", changed("weight", lambda t: t[:9]), "weight must be 4096 bytes"),
        ("nf4", changed("weight.quant_state.bitsandbytes__nf4", lambda t: t[:9]), "cannot be read"),
        ("fp8-rows", lambda tensors: tensors.pop("weight_scale"), "m.weight is stored as float8_e4m3fn"),
    ],
)  # fmt: skip
def test_damage_is_one_line_that_names_the_tensor(
    tmp_path: Path, name: str, change: Callable[[dict[str, Tensor]], object], complaint: str
) -> None:
    pack, said = FORMATS[name]
    tensors, _ = pack()
    change(tensors)
    with pytest.raises(InvalidConfig, match=complaint) as caught:
        written(tmp_path, tensors, said).read("m.weight", (OUT, IN))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


def in_words(matrix: Tensor) -> Packed:
    """GPTQ's tensors of about this matrix, and the numbers that they stand for."""
    scales = (matrix.abs().amax(1, keepdim=True) / 127).half()
    numbers = (matrix / scales.float()).round().clamp(-128, 127).long() + 128
    tensors = {"qweight": stream(numbers, 8).t().contiguous(), "scales": scales.t().contiguous()}
    tensors["qzeros"] = stream(torch.full((1, len(matrix)), 127), 8)  # less 1
    return tensors, (numbers - 128) * scales.float()


def in_fp8(matrix: Tensor) -> Packed:
    scales = matrix.abs().amax(1, keepdim=True) / 448
    numbers = (matrix / scales).to(torch.float8_e4m3fn)
    return {"weight": numbers, "weight_scale": scales}, numbers.float() * scales


def quantised_twin(folder: Path, family: str, config: dict[str, Any], pack: Callable[[Tensor], Packed]) -> Twin:
    """Every projection that the family's files have as a matrix of its own is packed."""
    twin = make_twin(folder, family, hidden_size=64, intermediate_size=64)
    tensors, state = load_file(folder / "model.safetensors"), dict(twin.reference.named_parameters())
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        packed, wide = pack(tensors.pop(name))
        tensors |= {f"{name.removesuffix('weight')}{role}": tensor for role, tensor in packed.items()}
        experts, _, rest = name.partition(".experts.")
        with torch.no_grad():
            if name in state:
                state[name].copy_(wide)
            else:
                _put(state, experts, rest, wide)
    tensors["model.layers.0.self_attn.k_proj.k_scale"] = torch.ones(1)
    save_file(tensors, folder / "model.safetensors")
    values = json.loads((folder / "config.json").read_text()) | {"quantization_config": config}
    (folder / "config.json").write_text(json.dumps(values))
    return Twin(folder, twin.reference, load_hf(folder))


def _put(state: dict[str, Tensor], before: str, rest: str, wide: Tensor) -> None:
    """Into the tensors of all experts that transformers has."""
    expert, role, _ = rest.split(".")
    if role == "down_proj":
        state[f"{before}.experts.down_proj"][int(expert)] = wide
    else:
        half = state[f"{before}.experts.gate_up_proj"][int(expert)].chunk(2)
        half[role == "up_proj"].copy_(wide)


GPTQ = {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": False, "sym": True, "lm_head": False}
ROWS = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "kv_cache_scheme": None,
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
        "num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False,
    }}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("family", "config", "pack"), [("llama-mha", GPTQ, in_words), ("qwen3-moe", ROWS, in_fp8)], ids=["gptq", "experts"]
)
def test_a_model_of_quantised_matrices_has_the_logits_of_what_they_stand_for(
    tmp_path: Path, family: str, config: dict[str, Any], pack: Callable[[Tensor], Packed]
) -> None:
    twin = quantised_twin(tmp_path, family, config, pack)
    tokens = random_tokens(20)
    kv = KvCache(twin.config, 8, 4, torch.float32, CPU)
    logits = run(twin.decoder(), kv, [chunk(tokens, 0, 20, [3, 1, 0, 6, 2], request(tokens))])
    torch.testing.assert_close(logits[0], twin.reference_logits(tokens)[-1], atol=1e-3, rtol=1e-4)
    (line,) = twin.config.warnings
    kept = "stay integers (W8)" if config is GPTQ else "are widened to --dtype"
    assert "weights stay as they are on a GPU" in line and f"{kept} on a CPU" in line


@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
def test_the_start_names_what_is_kept_and_counts_what_is_widened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    packs = iter([in_fp8, *[in_words] * 99])
    twin = quantised_twin(tmp_path, "llama-mha", GPTQ, lambda matrix: next(packs)(matrix))
    loaded = load_runner(
        Settings(device="cpu", kernels="native", threads=1), Source("folder", tmp_path, "twin"), twin.config
    )  # fmt: skip
    assert loaded.quantize == "W8"
    (line,) = [line for line in caplog.messages if "quantised" in line]
    assert line == f"{tmp_path}: 1 of 14 quantised matrices are widened: 1 in fp8"


@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
@pytest.mark.parametrize("family", ["llama-mha", "qwen3-moe"])
def test_a_model_whose_integers_are_kept_is_near_the_one_whose_are_widened(tmp_path: Path, family: str) -> None:
    """Inputs are rounded to 8 bits, so not equal."""
    twin = quantised_twin(tmp_path, family, GPTQ, in_words)
    tokens, source = random_tokens(20), HfTensors(tmp_path, twin.config.quantisation)
    decoder = build_model(
        twin.config, NativeOps(2), source, torch.float32, CPU, 64, WeightFormat(as_stored=True)
    )  # fmt: skip
    assert not source.widened
    logits = run(decoder, KvCache(twin.config, 8, 4, torch.float32, CPU), [
        chunk(tokens, 0, 20, [3, 1, 0, 6, 2], request(tokens))
    ])[0]  # fmt: skip
    expected = twin.reference_logits(tokens)[-1]
    assert (logits - expected).norm() < 0.1 * expected.norm()
