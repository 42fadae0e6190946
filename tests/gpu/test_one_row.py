"""The kernels of a single row on a real GPU: the interpreter cannot show programs that run beside each other."""

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from chairlift.runner.cuda.attention.one_row import attend_grouped_row, attend_one_row
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.ops import Norm
from fakes.steps import Case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def on_gpu(batch: CudaBatch) -> CudaBatch:
    parts = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return replace(batch, **{name: part.cuda() for name, part in parts.items() if isinstance(part, Tensor)})


@pytest.mark.parametrize("heads", [32, 12])
@pytest.mark.parametrize("context", [0, 63, 300, 3000])
@pytest.mark.parametrize("cap", [0.0, 0.7])
def test_who_finishes_last_changes_no_bit(heads: int, context: int, cap: float) -> None:
    case = Case([(context, 1)], heads, heads, dim=128, size=16)
    batch, attention = on_gpu(case.cuda), replace(case.attention(cap=cap), rotation=case.rotation.cuda())
    qkv, keys, values = (part.bfloat16().cuda() for part in (case.qkv, case.keys, case.values))
    ops = CudaOps()
    q = ops.rotate_and_store(qkv, attention, keys, values, batch)
    want, stored = ops.attention(q, attention.spec, keys, values, batch), keys.clone()
    counters = torch.zeros(heads, dtype=torch.int32, device="cuda")
    answers = [attend_one_row(qkv, attention, keys, values, batch, counters) for _ in range(200)]
    torch.testing.assert_close(answers[0], want, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(keys, stored, atol=2e-2, rtol=2e-2)
    assert all(torch.equal(answer, answers[0]) for answer in answers)
    assert not counters.any()


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"), [(32, 8, 128), (16, 8, 256), (8, 2, 256), (8, 2, 512), (16, 2, 512)]
)
@pytest.mark.parametrize(("context", "window"), [(0, 0), (63, 0), (300, 0), (1500, 0), (1500, 512)])
@pytest.mark.parametrize("keeps", ["own", "keys as values", "nothing"])
def test_heads_that_share_keys_are_as_by_several_kernels(
    heads: int, kv_heads: int, dim: int, context: int, window: int, keeps: str
) -> None:
    case = Case([(context, 1)], heads, kv_heads, dim=dim, size=16)
    gain = case.gain.cuda()
    plain = replace(case.attention(window, has_norm=True), rotation=case.rotation.cuda(), q_norm=gain, k_norm=gain)
    is_shared, has_keys_as_values = keeps == "nothing", keeps == "keys as values"
    spec = replace(
        plain.spec, has_value_norm=not is_shared, has_keys_as_values=has_keys_as_values, has_own_rows=not is_shared
    )
    attention = replace(plain, spec=spec, v_norm=None if is_shared else Norm(gain, 1e-5))
    batch, qkv = on_gpu(case.cuda), case.qkv[:, : spec.num_inputs].bfloat16().cuda()
    keys, values = (part.bfloat16().cuda() for part in (case.keys, case.values))
    want, stored = CudaOps().attend(qkv, attention, keys, values, batch), (keys.clone(), values.clone())
    counters = torch.zeros(kv_heads, dtype=torch.int32, device="cuda")
    answers = [attend_grouped_row(qkv, attention, keys, values, batch, counters) for _ in range(100)]
    torch.testing.assert_close(answers[0], want, atol=2e-2, rtol=2e-2)
    for kept, before in zip((keys, values), stored, strict=True):
        torch.testing.assert_close(kept, before, atol=2e-2, rtol=2e-2)
    assert all(torch.equal(answer, answers[0]) for answer in answers)
    assert not counters.any()
