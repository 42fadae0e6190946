"""References of engines that round weights see what those keep; tolerances follow what is rounded."""

import pytest
import torch

from chairlift.lab.verify.reference import RoundedTensors
from chairlift.lab.verify.tolerance import tolerance_of
from chairlift.models.spec import HF_NAMES, uniform_model
from chairlift.runner.native.ops import available
from chairlift.runner.weights.dummy import DummyTensors

CONFIG = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=64, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=16,
    intermediate_size=48, vocab_size=48, max_model_len=64, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip


@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
def test_matrices_are_rounded_and_vectors_are_not() -> None:
    source = RoundedTensors(DummyTensors(CONFIG), HF_NAMES, "int4")
    assert torch.equal(source.read("model.norm.weight", (64,)), torch.ones(64))
    errors = {}
    for name in ("model.layers.0.mlp.up_proj.weight", "lm_head.weight"):
        plain = DummyTensors(CONFIG).read(name, (48, 64)).clone()
        errors[name] = float((source.read(name, (48, 64)) - plain).norm() / plain.norm())
    assert 0.05 < errors["model.layers.0.mlp.up_proj.weight"] < 0.15
    assert 0.001 < errors["lm_head.weight"] < 0.01  # 8 bits


def test_tolerances_follow_what_is_rounded() -> None:
    plain, rounded, fp8 = (
        tolerance_of("float32", "float32", "none"),
        tolerance_of("float32", "float32", "Q4_1"),
        tolerance_of("bfloat16", "float8_e4m3fn", "none"),
    )
    assert plain.spreads < rounded.spreads < fp8.spreads
    assert tolerance_of("float32", "int8", "none") == rounded == tolerance_of("bfloat16", "bfloat16", "int8")
