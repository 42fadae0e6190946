"""Ranks on GPUs: over gloo two share one card; over NCCL each has its own, where there are several."""

from pathlib import Path
from typing import Any

import pytest
import torch

from chairlift.build import ResolvedModel, find_model
from chairlift.config.options.resolve import resolve
from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify.batch import against_batch
from chairlift.lab.verify.cases import greedy
from chairlift.lab.verify.opened import OpenedModel, PromptSpec, prompts_for
from chairlift.lab.verify.report import Verdict
from fakes.tiny_model import write_tiny_model
from unit.runner.twins import make_twin, random_tokens

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
SPEC = PromptSpec(num_prompts=4, num_tokens=12)
HYBRID_SPEC = PromptSpec(prompts=[random_tokens(length, length) for length in (3, 15, 16, 200)], num_tokens=12)
NCCL = pytest.param("auto", marks=pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sides = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "max_position_embeddings": 512}
    return make_twin(tmp_path_factory.mktemp("models"), "qwen3.5", **sides).folder


def resolved(folder: Path, count: int, **options: Any) -> ResolvedModel:
    plain = {"device": "cuda", "dtype": "float32", "max_running": 9, "max_model_len": 512, "num_blocks": 512}
    return find_model(resolve({"model": str(folder), "tensor_parallel": count, **plain, **options}))


@pytest.mark.parametrize("kernels", ["triton", "torch"])
@pytest.mark.parametrize("collectives", ["gloo", NCCL])
def test_two_ranks_give_the_logits_of_one(folder: Path, kernels: str, collectives: str) -> None:
    check_equal(folder, SPEC, kernels, collectives)


@pytest.mark.parametrize("collectives", ["gloo", NCCL])
def test_two_ranks_of_a_hybrid_give_the_logits_of_one(hybrid: Path, collectives: str) -> None:
    check_equal(hybrid, HYBRID_SPEC, "triton", collectives)


def check_equal(folder: Path, spec: PromptSpec, kernels: str, collectives: str) -> None:
    model = resolved(folder, 1, kernels=kernels)
    cases = greedy(prompts_for(model, spec), spec.num_tokens)
    expected = OpenedModel.open(model).as_configured(cases)
    ours = OpenedModel.open(resolved(folder, 2, kernels=kernels, collectives=collectives)).as_configured(cases)
    for key, output in expected.items():
        assert ours[key].tokens == output.tokens
        for position, row in output.rows.items():
            torch.testing.assert_close(
                torch.from_numpy(ours[key].rows[position]), torch.from_numpy(row), atol=2e-3, rtol=2e-3
            )


@pytest.mark.parametrize("collectives", ["gloo", NCCL])
def test_exact_bits_do_not_depend_on_what_shares_a_step(folder: Path, collectives: str) -> None:
    model = resolved(folder, 2, exact=True, dtype="bfloat16", num_blocks=None, collectives=collectives)
    report = against_batch(model, SPEC, lambda *_: None)
    assert report.verdict is Verdict.PASS, report.why


@pytest.mark.parametrize("collectives", ["gloo", NCCL])
def test_exact_bits_of_a_hybrid_do_not_depend_on_what_shares_a_step(hybrid: Path, collectives: str) -> None:
    model = resolved(hybrid, 2, exact=True, dtype="bfloat16", num_blocks=None, collectives=collectives)
    report = against_batch(model, HYBRID_SPEC, lambda *_: None)
    assert report.verdict is Verdict.PASS, report.why


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="needs one GPU and no more")
def test_ranks_that_would_share_a_card_are_refused_over_nccl(folder: Path) -> None:
    with pytest.raises(InvalidConfig, match="torch sees 1 GPU, and each rank needs its own; .* --collectives gloo"):
        OpenedModel.open(resolved(folder, 2))
