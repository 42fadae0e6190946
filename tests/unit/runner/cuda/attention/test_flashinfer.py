"""Choosing FlashInfer, and having its kernels compiled, without it and with a stand-in for it."""

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.cuda.attention.flashinfer import FlashKernels
from chairlift.runner.kernels import pick_attention
from fakes.flashinfer_library import Spec, make_library

SHAPE: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "hidden_size": 256, "num_layers": 2, "num_heads": 4, "num_kv_heads": 4,
    "head_dim": 64, "intermediate_size": 512, "vocab_size": 99, "max_model_len": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}  # fmt: skip
CONFIG = uniform_model(**SHAPE)
BF16 = torch.bfloat16


def with_attention(last_only: bool = False, **changes: Any) -> ModelConfig:
    layers = [replace(layer, mixer=replace(layer.attention, **changes)) for layer in CONFIG.layers]
    return replace(CONFIG, layers=(CONFIG.layers[0], layers[1]) if last_only else tuple(layers))


def pick(name: str, **changes: Any) -> FlashKernels | None:
    parts = {"kernels": "triton", "dtype": BF16, "kv_dtype": BF16, "config": CONFIG, "block_size": 16} | changes
    return pick_attention(name, device=torch.device("cpu"), **parts)


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chairlift.runner.cuda.attention.flashinfer.find_spec", lambda name: None)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLASHINFER_LOGGING_LEVEL", "MAX_JOBS"):
        monkeypatch.setenv(name, "")  # so that it is as before afterwards


def install(monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None) -> list[Spec]:
    built: list[Spec] = []
    for name, module in make_library(built, failure).items():
        monkeypatch.setitem(sys.modules, name, module)
    return built


def test_a_missing_flashinfer_is_refused_by_name_with_the_way_out(absent: None) -> None:
    with pytest.raises(InvalidConfig) as caught:
        pick("flashinfer")
    assert str(caught.value) == (
        "attention flashinfer: it is not installed; pip install 'chairlift[gpu]' or use --attention triton"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kernels": "torch"}, "the torch ones are used; use --attention auto"),
        ({"dtype": torch.float32, "kv_dtype": torch.float32}, "bfloat16 and float16 only"),
        ({"kv_dtype": torch.float8_e4m3fn}, "cache included"),
        ({"config": uniform_model(**SHAPE | {"head_dim": 32})}, "heads of 32"),
        ({"config": with_attention(cap=50.0)}, "uncapped"),
        ({"config": with_attention(scale=0.1)}, "plainly scaled"),
        ({"config": with_attention(last_only=True, window=64)}, "the same in all layers"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str
) -> None:
    install(monkeypatch)
    with pytest.raises(InvalidConfig, match=words):
        pick("flashinfer", **changes)


def test_our_own_attention_needs_our_own_kernels() -> None:
    assert pick("triton") is None
    with pytest.raises(InvalidConfig, match="attention triton: it is for the triton kernels"):
        pick("triton", kernels="native")


@pytest.mark.parametrize(("kv_heads", "second"), [(4, "decode"), (1, "prefill fa2")])
def test_by_name_it_is_compiled_before_anything_else_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kv_heads: int, second: str
) -> None:
    built = install(monkeypatch)
    flash = pick("flashinfer", config=uniform_model(**SHAPE | {"num_kv_heads": kv_heads}))
    assert flash is not None
    told = capfd.readouterr().err
    assert told.startswith("chairlift: compiling FlashInfer's kernels, once:") and told.count("\n") == 1
    assert built[0].kind[:2] == ("prefill", "fa3")
    assert " ".join(part for part in built[1].kind if isinstance(part, str)) == second


@pytest.mark.parametrize("window", [0, 64])
def test_a_window_makes_another_kernel(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    built = install(monkeypatch)
    pick("flashinfer", config=uniform_model(**SHAPE | {"sliding_window": window}))
    assert [spec.kind[-3:-1] if spec.kind[0] == "prefill" else spec.kind[-2:] for spec in built] == [
        (window > 0, False)
    ] * 2


def test_what_is_compiled_already_is_not_spoken_of(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch)
    monkeypatch.setattr(Spec, "__init__", lambda self, *kind: self.__dict__.update(kind=kind, is_compiled=True))
    assert pick("flashinfer") is not None
    assert capfd.readouterr().err == ""


OUTPUT = (
    "Ninja build failed. Ninja output:\n[1/3] nvcc -c a.cu\na.cu:1:10: fatal error: curand.h: No such file\nstopped."
)


def test_a_compiler_that_fails_is_told_of_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, RuntimeError(OUTPUT))
    with pytest.raises(InvalidConfig) as caught:
        pick("flashinfer")
    assert str(caught.value) == (
        "attention flashinfer: a.cu:1:10: fatal error: curand.h: No such file; use --attention triton"
    )


def test_a_flashinfer_that_does_not_import_is_told_of_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.delattr(sys.modules["flashinfer"], "jit")
    monkeypatch.delitem(sys.modules, "flashinfer.jit")
    with pytest.raises(InvalidConfig, match=r"attention flashinfer: cannot import .*; use --attention triton"):
        pick("flashinfer")


@pytest.mark.parametrize("kernels", ["triton", "native", "torch"])
def test_auto_leaves_an_installed_flashinfer_alone(monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    built = install(monkeypatch)
    assert pick("auto", kernels=kernels) is None
    assert not built
