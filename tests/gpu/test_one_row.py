"""The kernels of a single row on a real GPU: the interpreter cannot show programs that run beside each other."""

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from chairlift.runner.cuda.attention.one_row import attend_one_row
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.step.batch import CudaBatch
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
