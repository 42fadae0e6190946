"""Alone against among others, on a tiny model: what passes, what fails, and what proves nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chairlift.build import ResolvedModel, find_model
from chairlift.config.options.resolve import resolve
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify import batch
from chairlift.lab.verify.batch import against_batch
from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.opened import OpenedModel, PromptSpec
from chairlift.lab.verify.report import LEAST_ROWS, Comparison, Verdict, VerifyReport
from chairlift.lab.verify.tolerance import tolerance_of
from chairlift.runner.ops import Ops
from chairlift.runner.start import choices
from chairlift.runner.torch.ops import TorchOps
from fakes.row_dependent import RowDependentOps

SPEC = PromptSpec(num_prompts=4, num_tokens=6)


def resolved(model: Path, **options: Any) -> ResolvedModel:
    plain = {"kernels": "torch", "dtype": "float32", "threads": 1, "max_running": 9, "max_model_len": 512}
    return find_model(resolve({"model": str(model), **plain, **options}))


def nothing(name: str, done: int, total: int) -> None:
    pass


def exact_ops() -> TorchOps:
    return TorchOps(exact=True)


def use(monkeypatch: pytest.MonkeyPatch, when_exact: Callable[[], Ops], else_: Callable[[], Ops]) -> None:
    monkeypatch.setattr(choices, "make_ops", lambda kernels, threads, exact=False: when_exact() if exact else else_())


def verified(model: Path, spec: PromptSpec = SPEC, **options: Any) -> VerifyReport:
    return against_batch(resolved(model, **options), spec, nothing)


def test_sums_that_depend_on_the_rows_are_found_in_every_world_and_fail_exact(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, RowDependentOps, RowDependentOps)
    report = verified(tiny_model, exact=True)
    assert report.verdict is Verdict.FAIL
    assert "in spite of --exact; first in batch of 9: prompt 1, sample 0, position" in report.why
    assert all(comparison.is_reached for comparison in report.comparisons)
    # Where nothing but samples shares a step now and then, few rows may differ; wide batches must all show it.
    wide = [comparison for comparison in report.comparisons if comparison.name.startswith("batch of")]
    assert all(comparison.deviation.num_differing > 0 for comparison in wide)


def test_the_same_sums_are_within_the_tolerance_where_nothing_is_promised(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, RowDependentOps, RowDependentOps)
    report = verified(tiny_model)
    assert report.verdict is Verdict.PASS
    assert report.total.num_differing > 0
    assert not any(comparison.is_control for comparison in report.comparisons)


def test_exact_passes_when_a_control_shows_that_a_difference_would_be_found(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, exact_ops, RowDependentOps)
    report = verified(tiny_model, exact=True)
    assert report.verdict is Verdict.PASS
    assert report.total.num_differing == 0
    control = report.comparisons[-1]
    assert control.is_control
    assert control.deviation.num_differing > 0
    assert report.total.num_rows >= 16 * 5 * 6  # controls do not count


def test_a_control_without_a_difference_proves_nothing(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, exact_ops, exact_ops)
    report = verified(tiny_model, exact=True)
    assert report.verdict is Verdict.NOTHING
    assert report.verdict.exit_code == 2
    assert "nothing differed in the controls either" in report.why


def test_few_rows_prove_nothing(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RowDependentOps, RowDependentOps)
    report = verified(tiny_model, PromptSpec(num_prompts=1, num_tokens=1))
    assert report.verdict is Verdict.NOTHING
    assert "too little" in report.why


def test_interrupted_early_it_says_so_instead_of_asking_for_more(tiny_model: Path) -> None:
    def watch(name: str, done: int, total: int) -> None:
        if name == "each alone":
            raise KeyboardInterrupt

    report = against_batch(resolved(tiny_model), SPEC, watch)
    assert report.is_partial
    assert report.why.startswith("interrupted")


def test_an_interrupted_run_leaves_what_it_compared(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RowDependentOps, RowDependentOps)

    def watch(name: str, done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    report = against_batch(resolved(tiny_model), SPEC, watch)
    assert report.is_partial
    assert report.verdict is Verdict.NOTHING
    assert len(report.comparisons) == 2
    assert json.loads(json.dumps(report.to_json()))["partial"] is True
    assert "PARTIAL" in report.to_text()


def test_company_of_one_is_refused(tiny_model: Path) -> None:
    with pytest.raises(InvalidConfig, match="--max-running 1"):
        verified(tiny_model, max_running=1)


def test_more_logits_than_memory_are_refused_before_anything_is_loaded(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenedModel, "open", lambda model: pytest.fail("loaded"))
    with pytest.raises(InvalidConfig, match="give less with --num-prompts or --tokens"):
        verified(tiny_model, PromptSpec(num_prompts=100_000, num_tokens=500))


def test_on_mindspore_the_control_is_torch_on_a_cpu_and_so_is_the_way_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[ResolvedModel] = []
    monkeypatch.setattr(OpenedModel, "open", opened.append)
    differing = Comparison("a world", Deviation(num_rows=LEAST_ROWS, num_differing=1), {}, "", is_control=True)
    monkeypatch.setattr(batch, "_compare", lambda *arguments: arguments[3].comparisons.append(differing))
    report, model = VerifyReport("batch", {}), find_model(Settings(device="mindspore"))
    assert batch._find_control(model, "mindspore:cpu", [], 0, report, nothing)
    assert [(control.settings.device, control.settings.kernels) for control in opened] == [("cpu", "torch")]
    report.comparisons = [replace(differing, is_control=False)]
    batch._judge(report, tolerance_of("float32", "float32", "none"), model.settings, has_control=True)
    assert report.verdict is Verdict.PASS and "; --device cpu --exact makes them the same" in report.why
