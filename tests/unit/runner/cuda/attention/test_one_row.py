"""Steps of a single token in fewer kernels against torch's operations, in Triton's interpreter: no GPU needed."""

import os
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor

from chairlift.models.spec import ACTIVATIONS, uniform_model
from chairlift.runner.cuda import ops as cuda_ops
from chairlift.runner.cuda.attention.one_row import attend_grouped_row, attend_one_row, takes_grouped
from chairlift.runner.cuda.ops import CudaOps, CudaWeight
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.ops import Attention, Norm
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.steps import Case

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)

CPU = torch.device("cpu")


def attend(case: Case, attention: Attention | None = None) -> tuple[Tensor, Tensor, Tensor]:
    keys, values = case.keys.clone(), case.values.clone()
    counters = torch.zeros(keys.shape[1], dtype=torch.int32)
    out = attend_one_row(case.qkv, attention or case.attention(), keys, values, case.cuda, counters)
    assert not counters.any()
    return keys, values, out


@pytest.mark.sampled(2)
@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize(
    ("context", "window", "cap"),
    [
        (0, 0, 0.0), (31, 0, 0.0), (32, 0, 0.0), (300, 0, 0.0), (300, 50, 0.0), (300, 50, 0.7), (300, 0, 0.7),
        (1100, 0, 0.0), (1100, 70, 0.0),
    ],
)  # fmt: skip
def test_one_kernel_rotates_stores_and_attends(heads: int, context: int, window: int, cap: float) -> None:
    case = Case([(context, 1)], heads, heads, dim=16, size=4)
    attention = case.attention(window, has_norm=window > 0, cap=cap)
    _, *want = case.run(TorchOps(), attention)
    for name, a, b in zip(("keys", "values", "attention"), attend(case, attention), want, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("context", "window", "changes"),
    [
        (0, 0, {}),
        (31, 0, {"has_qk_norm": True}),
        (300, 0, {"has_qk_norm": True, "has_value_norm": True, "has_keys_as_values": True}),
        (300, 50, {"cap": 0.7}),
        (300, 0, {"has_qk_norm": True, "has_own_rows": False}),
        (300, 70, {"has_value_norm": True, "has_own_rows": True}),
        (2100, 0, {}),
    ],
)
def test_heads_that_share_keys_take_one_kernel_too(context: int, window: int, changes: dict[str, Any]) -> None:
    case = Case([(context, 1)], 4, 2, dim=16, size=4)
    plain = case.attention(window, has_norm="has_qk_norm" in changes)
    spec = replace(plain.spec, **changes)
    v_norm = Norm(case.gain, 1e-5) if spec.has_value_norm else None
    attention = replace(plain, spec=spec, v_norm=v_norm)
    qkv = case.qkv[:, : spec.num_inputs]
    found = []
    counters = torch.zeros(2, dtype=torch.int32)
    for ops, batch in ((None, case.cuda), (CudaOps(), case.cuda), (TorchOps(), case.plain)):
        attend = partial(attend_grouped_row, counters=counters) if ops is None else ops.attend
        keys, values = case.keys.clone(), case.values.clone()
        found.append((attend(qkv.clone(), attention, keys, values, batch), keys, values))
    assert not counters.any()
    for one, several, want in zip(*found, strict=True):
        torch.testing.assert_close(one, want, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(several, want, atol=2e-5, rtol=1e-4)


def test_only_short_contexts_and_windows_are_joined_by_one_program() -> None:
    case = Case([(5000, 1)], 4, 2, dim=256, size=16)
    assert not takes_grouped(case.attention().spec, case.cuda, case.keys)
    assert takes_grouped(case.attention(window=512).spec, case.cuda, case.keys)


def test_padding_touches_nothing() -> None:
    case = Case([(40, 1)], 4, 4, dim=16, size=4)
    case.cuda.positions[0] = case.cuda.slots[0] = -1
    keys, values, _ = attend(case)
    assert torch.equal(keys, case.keys) and torch.equal(values, case.values)


def test_memory_behind_the_context_is_not_read() -> None:
    case = Case([(40, 1)], 4, 4, dim=16, size=4)
    want = attend(case)[2]
    used = case.cuda.tables[0].long()
    for memory in (case.keys, case.values):
        kept = memory[used].clone()
        memory.fill_(torch.nan)
        memory[used] = kept
        memory[used[-1], :, 40 % 4 :] = torch.nan  # its own place too: that is still to be written
    torch.testing.assert_close(attend(case)[2], want, atol=0, rtol=0)


def test_fp8_attends_to_the_own_key_as_it_is_kept(fp8_rounding: None) -> None:
    case = Case([(0, 1)], 4, 4, dim=16, size=4)
    case.keys, case.values = case.keys.to(torch.float8_e4m3fn), case.values.to(torch.float8_e4m3fn)
    _, values, out = attend(case)
    kept = values[case.cuda.tables[0, 0], :, 0].float()  # the only token: its value is the answer
    torch.testing.assert_close(out.view(4, 16), kept, atol=1e-6, rtol=0)


@pytest.mark.parametrize("width", [64, 100])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # of numpy: the quotient is 0 then
def test_the_activation_is_part_of_the_product(width: int, activation: str) -> None:
    x, matrix = torch.randn(1, width).bfloat16(), torch.randn(2 * 7, width).bfloat16()
    weight = CudaOps().weight(matrix)
    assert isinstance(weight, CudaWeight)
    want = TorchOps().activate(x.float() @ matrix.float().t(), activation).bfloat16()
    torch.testing.assert_close(weight.gated(x, activation), want, atol=5e-2, rtol=2e-2)


CONFIG = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=4, head_dim=16,
    intermediate_size=48, vocab_size=61, max_model_len=64, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip


def built(ops: CudaOps | TorchOps) -> Decoder:
    return build_model(CONFIG, ops, DummyTensors(CONFIG), torch.bfloat16, CPU, CONFIG.max_model_len)


def settled() -> Decoder:
    """As a runner has it."""
    ops = CudaOps()
    model = built(ops)
    ops.choose_kernels(model.attentions, torch.bfloat16, block_size=4, width=16, device=CPU)
    return model


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the rows of every call of the one kernel."""
    seen: list[int] = []

    def watched(qkv: Tensor, *rest: Any) -> Tensor:
        seen.append(len(qkv))
        return attend_one_row(qkv, *rest)

    monkeypatch.setattr(cuda_ops, "attend_one_row", watched)
    return seen


@pytest.mark.nightly
def test_a_step_comes_out_as_with_torch(calls: list[int]) -> None:
    case = Case([(20, 1)], 4, 4, dim=16, size=4)
    answers = []
    for decoder, batch in ((built(TorchOps()), case.plain), (settled(), case.cuda)):
        kv = KvCache(CONFIG, len(case.keys), 4, torch.bfloat16, CPU)
        for memory in chain(*kv.state):
            memory.normal_(generator=torch.Generator().manual_seed(2))
        answers.append((decoder.hidden(batch, kv), *kv.state[1]))
    for want, got in zip(*answers, strict=True):
        torch.testing.assert_close(got, want, atol=3e-2, rtol=3e-2)
    assert calls == [1] * CONFIG.num_layers


def test_steps_of_several_tokens_go_the_way_they_went(calls: list[int]) -> None:
    case = Case([(20, 1), (3, 1)], 4, 4, dim=16, size=4)
    answers = [
        decoder.hidden(case.cuda, KvCache(CONFIG, len(case.keys), 4, torch.bfloat16, CPU))
        for decoder in (built(CudaOps()), settled())
    ]
    assert torch.equal(*answers)
    assert not calls
