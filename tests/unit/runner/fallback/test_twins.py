"""Models of transformers in our pages against the same models as the library runs them, family by family."""

from pathlib import Path

import pytest
import torch

from chairlift.runner.fallback.model import TransformersModel
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.native.ops import NativeOps, available
from unit.runner.fallback.families import FAMILIES, LONGROPE, make_twin
from unit.runner.twins import CPU, _Float64, chunk, random_tokens, request, run, shuffled_tables

LENGTHS = [23, 40, 1, 9]
STEPS = ([8, 17, 1, 9], [15, 1, 1, 1], [1, 22, 1, 1], [1, 1, 1, 1], [4, 1, 1, 2], [1, 1, 1, 1])


def largest_error(model: TransformersModel, prompts: list[list[int]], expected: list[torch.Tensor]) -> float:
    """Of all logits of chunks and decodes that share steps, in shuffled blocks; of the largest logit."""
    tables = shuffled_tables([len(p) for p in prompts], 4, 40)
    kv = KvCache(model.config, 40, 4, model.dtype, CPU)
    done = [0] * len(prompts)
    worst = 0.0
    for counts in STEPS:
        parts = zip(prompts, done, counts, tables, range(len(prompts)), strict=True)
        logits = run(model, kv, [chunk(p, start, n, table, request(p, id=i)) for p, start, n, table, i in parts])
        done = [have + n for have, n in zip(done, counts, strict=True)]
        wanted = torch.stack([rows[have - 1] for rows, have in zip(expected, done, strict=True)])
        worst = max(worst, ((logits - wanted).abs().max() / wanted.abs().max()).item())
    return worst


@pytest.mark.sampled(12)
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_and_decodes_in_shuffled_blocks_give_the_logits_of_transformers(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    prompts = [random_tokens(length + 8, seed=length) for length in LENGTHS]
    expected = [twin.reference_logits(p) for p in prompts]
    assert largest_error(twin.model(), prompts, expected) < 1e-5


@pytest.mark.sampled(10)
@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
@pytest.mark.parametrize("family", FAMILIES)
def test_with_native_products_and_attention_they_are_the_same(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    prompts = [random_tokens(length + 8, seed=length) for length in LENGTHS]
    expected = [twin.reference_logits(p) for p in prompts]
    assert largest_error(twin.model(ops=NativeOps(1)), prompts, expected) < 1e-5


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "cohere2", "deepseek_v3", "gpt_oss", "modernbert-decoder"])
def test_in_float64_they_differ_by_rounding_alone(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    prompts = [random_tokens(length + 8, seed=length) for length in LENGTHS]
    twin.reference.double()
    if twin.reference._can_set_experts_implementation():
        twin.reference.set_experts_implementation("eager")
    model = twin.model(torch.float64)
    model._base.double()  # buffers too, as the reference's
    with _Float64():
        expected = [twin.reference_logits(p) for p in prompts]
        assert largest_error(model, prompts, expected) < 1e-10


def test_longrope_has_the_factors_of_the_served_context_whatever_shares_the_step(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "phi3", **LONGROPE)
    long, short = random_tokens(100), random_tokens(20, seed=1)
    tables = shuffled_tables([100, 20], 4, 40)
    model = twin.model()
    expected = twin.reference_logits(long)[-1]
    kv = KvCache(model.config, 40, 4, torch.float32, CPU)
    both = zip((long, short), tables, (0, 1), strict=True)
    together = run(model, kv, [chunk(t, 0, len(t), table, request(t, id=i)) for t, table, i in both])
    alone = run(model, kv, [chunk(short, 0, 20, tables[1], request(short))])
    torch.testing.assert_close(together[0], expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(together[1], alone[0], atol=1e-5, rtol=1e-5)
    assert (twin.reference_logits(short)[-1] - alone[0]).abs().max() > 1e-2  # by its own length it has the short ones
