"""The engine against references on a tiny model."""

from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify.opened import PromptSpec
from chairlift.lab.verify.reference import against_reference
from chairlift.lab.verify.report import Verdict
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.ops import Batch
from chairlift.runner.start import choices
from chairlift.runner.torch.ops import TorchOps
from unit.lab.verify.test_batch import nothing, resolved

SPEC = PromptSpec(num_prompts=5, num_tokens=12)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_right_engine_is_within_the_tolerance_of_both_references(tiny_model: Path, dtype: str) -> None:
    report = against_reference(resolved(tiny_model, dtype=dtype), SPEC, nothing)
    assert report.verdict is Verdict.PASS, report.to_text()
    assert [comparison.name for comparison in report.comparisons] == ["our own reference", "transformers"]
    assert report.comparisons[0].deviation.num_rows == 60
    assert report.comparisons[0].deviation.same_top > 0.9


def test_a_model_of_transformers_has_no_reference(tiny_model: Path) -> None:
    with pytest.raises(InvalidConfig, match="against reference: transformers computes this model itself"):
        against_reference(resolved(tiny_model, model_impl="transformers"), SPEC, nothing)


class TooSharp(TorchOps):
    """Scales the scores by a twentieth too much."""

    def attention(
        self, q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, batch: Batch, sinks: Tensor | None = None
    ) -> Tensor:
        return super().attention(q, replace(spec, scale=spec.scale * 1.05), keys, values, batch, sinks)


def test_a_small_mistake_in_attention_fails(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "make_ops", lambda kernels, threads, exact=False: TooSharp())
    report = against_reference(resolved(tiny_model), SPEC, nothing)
    assert report.verdict is Verdict.FAIL
    assert "our own reference" in report.why


def test_a_missing_transformers_is_one_line_and_no_failure(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chairlift.lab.verify import hugging_face

    monkeypatch.setattr(hugging_face, "find_spec", lambda name: None)
    report = against_reference(resolved(tiny_model), SPEC, nothing)
    assert report.verdict is Verdict.PASS
    assert report.notes == ["not compared with transformers: it is not installed"]


def test_few_rows_prove_nothing(tiny_model: Path) -> None:
    report = against_reference(resolved(tiny_model), replace(SPEC, num_prompts=2), nothing)
    assert report.verdict is Verdict.NOTHING
