"""What is tried before exact attention serves, in Triton's interpreter with kernels that agree and some that do not."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.spec import uniform_model
from chairlift.runner.cuda.attention import exact as exact_attention
from chairlift.runner.cuda.attention import exact_trial, tiling
from chairlift.runner.cuda.attention.exact_trial import can_fuse
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.ops import Attention
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("ordered_dots", "short"),
]

CPU = torch.device("cpu")
SHAPE: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "hidden_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1,
    "head_dim": 16, "intermediate_size": 32, "vocab_size": 61, "max_model_len": 64, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}  # fmt: skip


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stretches, of which the second is not full."""
    for module in (exact_attention, tiling):
        monkeypatch.setattr(module, "EXACT_SPLIT", 8)
        monkeypatch.setattr(module, "EXACT_TILE", 4)
    monkeypatch.setattr(exact_trial, "_NUM_TOKENS", 11)


def is_fused(**changes: Any) -> bool:
    config, ops = uniform_model(**SHAPE | changes), CudaOps(exact=True)
    model = build_model(config, ops, DummyTensors(config), torch.float32, CPU, config.max_model_len)
    return can_fuse(ops.rotate_and_store, model.attentions[0], torch.float32, 4, 16, CPU)


def a_bit_off(attend: Callable[..., None]) -> Callable[..., None]:
    """One number of what is written to the last argument is its neighbour."""

    def attend_otherwise(*args: Tensor) -> None:
        attend(*args)
        args[-1].view(torch.int32)[-1, 3] ^= 1

    return attend_otherwise


@pytest.mark.slow
def test_kernels_that_agree_are_used(caplog: pytest.LogCaptureFixture) -> None:
    assert is_fused()
    assert not caplog.records


@pytest.mark.nightly
def test_one_kernel_for_a_single_token_is_left_out_where_it_differs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exact_trial, "attend_one_row", lambda qkv, *_: qkv[:, :32])
    assert not is_fused()
    assert "other bits" in caplog.text


@pytest.mark.nightly
def test_a_key_that_is_stored_otherwise_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = exact_attention.attend_one_row

    def attend_and_spoil(
        qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: CudaBatch, counters: Tensor
    ) -> Tensor:
        out = attend(qkv, attention, keys, values, batch, counters)
        keys[2, 0, 0, 2] += int(batch.positions) == 10  # once all is answered
        return out

    monkeypatch.setattr(exact_trial, "attend_one_row", attend_and_spoil)
    assert not is_fused()


@pytest.mark.nightly
def test_norms_of_queries_are_never_part_of_one_kernel() -> None:
    assert not is_fused(has_qk_norm=True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kernel", "name"), [("attend_prompts", "prompts"), ("attend_rows", "rows")])
def test_where_others_differ_exact_is_refused(monkeypatch: pytest.MonkeyPatch, kernel: str, name: str) -> None:
    plain = getattr(exact_trial, kernel)
    calls = iter((plain, a_bit_off(plain)) if kernel == "attend_rows" else (a_bit_off(plain),))
    monkeypatch.setattr(exact_trial, kernel, lambda *args: next(calls)(*args))
    with pytest.raises(InvalidConfig, match=f"exact.*{name}"):
        is_fused()
