"""The kernels of encoders against torch's operations, and an input's bits alone and among others."""

import random
from pathlib import Path

import pytest
import torch

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.request import Request
from chairlift.models.mixers.attention import AttentionSpec, Rotation
from chairlift.runner.embedding.inputs import Input, rows_of
from chairlift.runner.embedding.ops import EncoderAttention, TorchEncoderOps
from chairlift.runner.embedding.runner import EmbeddingRunner
from chairlift.runner.machine.instructions import why_not_native
from chairlift.runner.native.encoder import NativeEncoderOps
from chairlift.runner.ops import Norm
from chairlift.runner.rope import rotation_table
from fakes.encoders import make_encoder

CPU = torch.device("cpu")
LENGTHS = (5, 1, 23, 40, 17, 16)
needs_native = pytest.mark.skipif(bool(why_not_native()), reason="needs the native kernels: make kernels")


def tokens(length: int, seed: int = 0) -> tuple[int, ...]:
    source = random.Random(f"{length} {seed}")
    return tuple(source.randrange(3, 60) for _ in range(length))


def vectors(runner: EmbeddingRunner, inputs: list[tuple[int, ...]]) -> list[bytes]:
    """Of one step."""
    requests = [
        Request(id=RequestId(i), prompt=ids, params=SamplingParams(max_tokens=1), max_output=1, seed=0)
        for i, ids in enumerate(inputs)
    ]
    chunks = [
        Chunk(each, 0, len(each.prompt), each.prompt, len(each.prompt), ([BlockId(0)],), 1, (each,))
        for each in requests
    ]
    runner.submit(StepPlan(0, tuple(chunks), (), sum(map(len, inputs)), 0))
    made = runner.collect().vectors
    return [made[each.id] for each in requests]


@pytest.mark.parametrize("family", ["Bert", "ModernBert"])
@pytest.mark.parametrize("has_head", [False, True])
@pytest.mark.parametrize("kernels", ["torch", pytest.param("native", marks=needs_native)])
def test_an_exact_vector_has_the_same_bits_alone_and_among_others(
    tmp_path: Path, family: str, has_head: bool, kernels: str
) -> None:
    runner = make_encoder(tmp_path, family, has_head).runner(exact=True, kernels=kernels, dtype="float32")
    inputs = [tokens(length) for length in LENGTHS]
    alone = [vectors(runner, [each])[0] for each in inputs]
    assert vectors(runner, inputs) == alone
    assert vectors(runner, [*inputs[::-1], tokens(30, 1)])[: len(inputs)] == alone[::-1]


@needs_native
@pytest.mark.parametrize("reach", [0, 3])
@pytest.mark.parametrize("head_dim", [8, 32, 64])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-5), (torch.bfloat16, 6e-2)])
def test_native_attention_sees_whole_inputs(reach: int, head_dim: int, dtype: torch.dtype, error: float) -> None:
    rows = rows_of([Input(tokens(length)) for length in LENGTHS], CPU)
    torch.manual_seed(1)
    qkv = torch.randn(sum(LENGTHS), 3 * 4 * head_dim).to(dtype)
    spec = AttentionSpec(num_heads=4, num_kv_heads=4, head_dim=head_dim, scale=head_dim**-0.5, rotation=None)
    table = rotation_table(Rotation(theta=10_000.0), head_dim, 64, torch.float32)
    attention = EncoderAttention(spec, reach, table)
    made, wanted = (ops.attend(qkv.clone(), attention, rows) for ops in (NativeEncoderOps(2), TorchEncoderOps()))
    torch.testing.assert_close(made, wanted, atol=error, rtol=error)


@needs_native
@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_native_norms_and_gelu_are_torch_s(is_gated: bool, has_bias: bool) -> None:
    native, plain = NativeEncoderOps(2), TorchEncoderOps()
    torch.manual_seed(2)
    x, residual = torch.randn(37, 70) * 3, torch.randn(37, 70)
    norm = Norm(torch.randn(70), 1e-5, torch.randn(70) if has_bias else None, is_centred=True)
    for mine, theirs in zip(
        native.add_norm(x.clone(), residual.clone(), norm), plain.add_norm(x, residual, norm), strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=2e-6, rtol=2e-6)
    wide = torch.linspace(-9, 9, 37 * 70).view(37, 70)
    made, wanted = (ops.activate(wide, "gelu", is_gated) for ops in (native, plain))
    torch.testing.assert_close(made, wanted, atol=2e-6, rtol=2e-6)
