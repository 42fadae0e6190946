"""Quantised files on a real GPU: numbers to the bit, products, tokens in captured steps, memory after loading."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from chairlift.build import find_model
from chairlift.config.options.resolve import resolve
from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.events import Token
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.verify.batch import against_batch
from chairlift.lab.verify.cases import random_prompts
from chairlift.lab.verify.opened import PromptSpec
from chairlift.lab.verify.report import Verdict
from chairlift.models.files.hf import load_hf
from chairlift.models.source import Source
from chairlift.models.spec import Quantisation
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.products import packed as packed_module
from chairlift.runner.cuda.products.fp8 import StoredFp8Weight
from chairlift.runner.cuda.products.int4_weight import Int4Weight
from chairlift.runner.cuda.products.packed import PackedWeight, pack
from chairlift.runner.start.load import Loaded, load_runner
from chairlift.runner.weights.source import Stored
from fakes.benchmark import load_benchmark
from fakes.clocks import CountingClock
from fakes.requests import make_request
from unit.runner.weights.test_quantised import FORMATS, IN, MADE, OUT, written

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
MADE_NAMES = [name.removesuffix(".expected") for name in MADE if name.endswith(".expected")]
MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
    "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4096,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "rope_theta": 1e4, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MIXTURE = MODEL | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 128, "num_experts": 16,
    "num_experts_per_tok": 4, "moe_intermediate_size": 384, "norm_topk_prob": True, "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}  # fmt: skip
load_benchmark("gpu/make_models")
WRITER = load_benchmark("gpu/make_quantised")
FILES = WRITER.FORMATS


def on_gpu(stored: Stored) -> Stored:
    order = None if stored.order is None else stored.order.cuda()
    return replace(stored, tensors=tuple(each.cuda() for each in stored.tensors), order=order)


def stored_of(folder: Path, name: str) -> tuple[Stored, Tensor]:
    pack_format, said = FORMATS[name]
    tensors, expected = pack_format()
    stored = written(folder, tensors, said).stored("m.weight", (OUT, IN))
    assert stored is not None
    return on_gpu(stored), expected.float()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_matrix_widens_to_the_numbers_that_its_tensors_stand_for(
    tmp_path: Path, name: str, dtype: torch.dtype
) -> None:
    stored, expected = stored_of(tmp_path, name)
    out = torch.empty(OUT, IN, dtype=dtype, device="cuda")
    pack(stored).widen(out)
    near = torch.finfo(dtype).eps if name == "bitsandbytes-int8" else 0.0  # a product of three, rounded once more
    torch.testing.assert_close(out.cpu(), expected.to(dtype), rtol=near, atol=0)


@pytest.mark.parametrize("name", MADE_NAMES)
def test_what_the_formats_makers_wrote_widens_to_what_they_widen_it_to(tmp_path: Path, name: str) -> None:
    tensors = {role.removeprefix(f"{name}."): each for role, each in MADE.items() if role.startswith(f"{name}.")}
    expected = tensors.pop("expected")
    stored = written(tmp_path, tensors, Quantisation(block=(8, 32))).stored("m.weight", (16, 64))
    if stored is None:
        pytest.skip("its groups go on in the next row: it is widened when it is loaded")
    out = torch.empty(16, 64, dtype=expected.dtype, device="cuda")
    pack(on_gpu(stored)).widen(out)
    near = 2e-7 if name == "int8" else 0.0  # a product of three, rounded once more
    torch.testing.assert_close(out.cpu(), expected, rtol=near, atol=0)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", ["awq", "nvfp4", "fp8-blocks"])
def test_a_product_has_the_bits_of_the_product_of_the_numbers(
    tmp_path: Path, name: str, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one, few and many rows, one after the other: the scratch is written again and again."""
    stored, expected = stored_of(tmp_path, name)
    wide = expected.bfloat16().cuda().repeat(6, 8)
    tiled = (each.repeat(6, 1 if each.shape[1] == 2 else 8, *[1] * (each.dim() - 2)) for each in stored.tensors)
    large = replace(stored, shape=(6 * OUT, 8 * IN), tensors=tuple(tiled))
    ops = CudaOps(exact)
    ops._hopper.begin(torch.device("cuda"), has_int4=True)
    plain, packed = ops.weight(wide), ops.stored_weight([large], None, torch.bfloat16)
    monkeypatch.setattr(packed_module, "MOST_WIDENED", 100 * 8 * IN)
    cut = ops.stored_weight([large], None, torch.bfloat16)
    for num_rows in (1, 3, 16, 64, 200):
        x = torch.randn(num_rows, 8 * IN, device="cuda").bfloat16()
        if isinstance(packed, Int4Weight) and not exact:  # few rows have products of their own
            torch.testing.assert_close(packed.logits(x), plain.logits(x), rtol=1e-4, atol=1e-3)
            continue
        assert torch.equal(packed.logits(x), plain.logits(x))
        for _ in range(20):
            assert torch.equal(packed.linear(x), plain.linear(x))
        got = cut.logits(x)
        assert torch.equal(got, plain.logits(x)) if exact else (got - plain.logits(x)).abs().max() < 0.1


def test_fp8_with_a_scale_a_row_is_multiplied_as_bytes(tmp_path: Path) -> None:
    stored, expected = stored_of(tmp_path, "fp8-rows")
    weight = CudaOps(fp8=True).stored_weight([stored], None, torch.bfloat16)
    assert isinstance(weight, StoredFp8Weight)
    for num_rows in (1, 2, 40):
        x = torch.randn(num_rows, IN, device="cuda").bfloat16()
        want = x.float() @ expected.cuda().t()
        assert (weight.linear(x).float() - want).norm() < 0.05 * want.norm()
        assert (weight.logits(x) - want).norm() < 0.01 * want.norm()
    blocks, _ = stored_of(tmp_path, "fp8-blocks")
    assert isinstance(CudaOps(fp8=True).stored_weight([blocks], None, torch.bfloat16), PackedWeight)


def load(folder: Path, **settings: Any) -> Loaded:
    given = {"device": "cuda", "kv_memory": 256 << 20, "max_model_len": 1024, "max_running": 16, **settings}
    return load_runner(Settings(**given), Source("folder", folder, "made"), load_hf(folder))


def tokens(loaded: Loaded, **params: Any) -> dict[int, list[int]]:
    engine = Engine(Scheduler(loaded.limits, Fcfs()), loaded.runner, CountingClock())
    for index in range(12):
        engine.add((make_request(index, range(3, 8 + 20 * index), 16, **{"temperature": 0.0, **params}),))
    found: dict[int, list[int]] = {}
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, Token):
                found.setdefault(event.request, []).append(event.token)
    return found


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("base", [MODEL, MIXTURE], ids=["dense", "mixture"])
def test_a_file_gives_the_tokens_of_its_numbers(tmp_path: Path, form: str, base: dict[str, Any]) -> None:
    """Exactly: kept packed and widened at load, captured and not."""
    if base is MIXTURE and form == "gptq-order":
        pytest.skip("experts with orders of columns of their own are widened when they are loaded")
    WRITER.write(tmp_path, base, form)
    kept = load(tmp_path / form, exact=True)
    assert kept.quantize not in ("none", "packed")
    got, eager = tokens(kept), tokens(kept, logprobs=1)
    del kept
    assert got == eager
    if form != "int8":  # a product of three, which packing rounds once more
        assert got == tokens(load(tmp_path / form, exact=True, quantize="none"))
    plain = tokens(load(tmp_path / form))
    assert plain.keys() == got.keys()


@pytest.mark.parametrize("form", [form for form in FILES if form not in ("int8", "gptq-order")])
def test_memory_after_loading_is_about_the_file(tmp_path: Path, form: str) -> None:
    config = MODEL | {"num_hidden_layers": 24}
    size = WRITER.write(tmp_path, config, form)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    load_benchmark("gpu/engine")
    stored = load_benchmark("gpu/stored")
    model, kept, memory, _ = stored.loaded(tmp_path / form, exact=False)
    rotation = 4 * 4096 * 128
    one_layer = 2 * 2 * 2816 * 1024
    assert kept != "bf16"
    assert memory - rotation <= 1.1 * size + one_layer, (memory / size, model.config.num_layers)


@pytest.mark.parametrize("form", ["fp8-blocks", "awq"])
def test_exact_passes_for_a_quantised_file_and_its_control_differs(tmp_path: Path, form: str) -> None:
    WRITER.write(tmp_path, MODEL | {"num_hidden_layers": 2}, form)
    options = {"model": str(tmp_path / form), "device": "cuda", "exact": True, "kv_memory": "1GiB"}
    prompts = random_prompts(MODEL["vocab_size"], 20, 0)
    report = against_batch(find_model(resolve(options)), PromptSpec(prompts=prompts, num_tokens=32), _nothing)
    assert report.verdict is Verdict.PASS, report.to_text()
    assert report.total.num_differing == 0
    assert report.total.num_rows > 5_000
    assert report.comparisons[-1].deviation.num_differing > 0


def _nothing(name: str, done: int, total: int) -> None:
    pass
