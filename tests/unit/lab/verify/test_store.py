"""Stored runs: what they hold, and what has altered since."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chairlift.config.options.values import check_new
from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify import baseline
from chairlift.lab.verify.opened import PromptSpec
from chairlift.lab.verify.output import Outputs
from chairlift.lab.verify.report import Verdict, VerifyReport
from chairlift.lab.verify.store import against_folder, save
from chairlift.lab.verify.subject import LocalSubject
from chairlift.runner.start import choices
from fakes.row_dependent import RowDependentOps
from unit.lab.verify.test_batch import nothing, resolved
from unit.lab.verify.test_reference import TooSharp

STORED = {"request": 0, "sample": 0, "prompt": [1], "params": {}, "tokens": [], "logprobs": []}
SPEC = PromptSpec(num_prompts=6, num_tokens=12)


@pytest.fixture(scope="module")
def stored(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "base"
    report = save(folder, LocalSubject(resolved(tiny_model)), SPEC, nothing)
    assert report.verdict is Verdict.PASS
    return folder


def compared(folder: Path, model: Path, spec: PromptSpec = SPEC, **options: Any) -> VerifyReport:
    return against_folder(folder, LocalSubject(resolved(model, **options)), spec, nothing)


def changed(stored: Path, to: Path, **changes: Any) -> Path:
    """A copy with other entries in its index."""
    (to / "file_npy").mkdir(parents=True)
    for path in (stored / "file_npy").iterdir():
        (to / "file_npy" / path.name).write_bytes(path.read_bytes())
    index = json.loads((stored / baseline.FILE).read_text())
    (to / baseline.FILE).write_text(json.dumps(index | changes))
    return to


def test_logits_at_every_100th_position_are_plain_rows_under_the_contests_names(stored: Path) -> None:
    names = sorted(path.name.split("_", 1)[1] for path in (stored / "file_npy").iterdir())
    assert len(names) == 3
    assert all(name.endswith("_100.npy") for name in names)
    index = json.loads((stored / baseline.FILE).read_text())
    # 90 and 94 tokens of prompt: the answer passes position 100; 101: the prompt ends there.
    with_files = [(len(r["prompt"]), list(r["files"])) for r in index["requests"] if r["files"]]
    assert with_files == [(90, ["100"]), (101, ["100"]), (94, ["100"])]
    for path in (stored / "file_npy").iterdir():
        row = np.load(path, allow_pickle=False)
        assert row.dtype == np.float32
        assert row.ndim == 2 and len(row) == 1


def test_too_little_to_compare_with_is_told_when_it_is_stored(tiny_model: Path, tmp_path: Path) -> None:
    for num_prompts, note in ((5, []), (4, ["fewer than 50 tokens are too little to compare with"])):
        spec = PromptSpec(num_prompts=num_prompts, num_tokens=12)
        report = save(tmp_path / str(num_prompts), LocalSubject(resolved(tiny_model)), spec, nothing)
        assert [text.partition(";")[0] for text in report.notes] == note


def test_only_the_rows_that_are_stored_are_kept_in_memory(tiny_model: Path) -> None:
    subject = LocalSubject(resolved(tiny_model))
    outputs = subject.outputs(subject.cases(SPEC))
    assert [sorted(output.rows) for output in outputs.values()] == [[], [100], [], [100], [], [100]]
    assert all(len(output.summaries) == 12 for output in outputs.values())


def test_another_policy_and_batch_alter_nothing_in_float32(stored: Path, tiny_model: Path) -> None:
    report = compared(stored, tiny_model, policy="longest-first", max_running=2, max_step_tokens=11)
    assert report.verdict is Verdict.PASS, report.to_text()
    assert report.total.num_rows == 3


def test_the_same_settings_give_the_same_bits(stored: Path, tiny_model: Path) -> None:
    report = compared(stored, tiny_model)
    assert "72 of 72 rows are the same in every bit" in report.notes[-1]


def test_stored_rows_without_logits_to_compare_with_are_told(
    stored: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = LocalSubject.outputs

    def without_rows(subject: LocalSubject, cases: Any) -> Any:
        found = outputs(subject, cases)
        for output in found.values():
            output.rows.clear()
        return found

    monkeypatch.setattr(LocalSubject, "outputs", without_rows)
    assert "3 stored rows were not compared" in compared(stored, tiny_model).notes[-1]


def test_a_setting_that_is_off_is_called_so(stored: Path, tiny_model: Path) -> None:
    assert "exact was off, is exact" in compared(stored, tiny_model, exact=True).notes[0]


def test_other_sums_are_close_but_not_the_same_bits(
    stored: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "make_ops", lambda kernels, threads, exact=False: RowDependentOps())
    report = compared(stored, tiny_model)
    assert report.verdict is Verdict.PASS
    assert "72 of 72 rows are the same in every bit" not in report.notes[-1]


def test_a_change_that_alters_outputs_fails(stored: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "make_ops", lambda kernels, threads, exact=False: TooSharp())
    report = compared(stored, tiny_model)
    assert report.verdict is Verdict.FAIL
    assert "log-probabilities are off by more than 0.005" in report.why


@pytest.mark.parametrize("name", ["model", "dtype", "chairlift"])
def test_a_baseline_of_something_else_is_named_and_not_compared(
    stored: Path, tiny_model: Path, tmp_path: Path, name: str
) -> None:
    report = compared(changed(stored, tmp_path / "other", **{name: "elsewhere"}), tiny_model)
    assert report.verdict is Verdict.NOTHING
    assert "was elsewhere" in report.why
    assert not report.comparisons


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": 2}, "must be chairlift-verify version 1"),
        ({"requests": 5}, "not a baseline"),
        ({"requests": [{**STORED, "request": 3}]}, "run again"),
        ({"requests": [{**STORED, "tokens": [1]}]}, "0 logprobs"),
        ({"requests": [{**STORED, "params": {"temperature": -1.0}}]}, "run again"),
    ],
)
def test_a_damaged_index_is_refused_in_one_line(
    stored: Path, tiny_model: Path, tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidConfig, match=complaint) as caught:
        compared(changed(stored, tmp_path / "other", **changes), tiny_model)
    assert "\n" not in str(caught.value)


def test_files_outside_the_folder_are_not_read(stored: Path, tiny_model: Path, tmp_path: Path) -> None:
    index = json.loads((stored / baseline.FILE).read_text())
    index["requests"][1]["files"] = {"100": "../../secret.npy"}
    with pytest.raises(InvalidConfig, match="by position"):
        compared(changed(stored, tmp_path / "other", **index), tiny_model)


def test_a_stored_object_array_is_refused(stored: Path, tiny_model: Path, tmp_path: Path) -> None:
    other = changed(stored, tmp_path / "other")
    path = next((other / "file_npy").iterdir())
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidConfig, match="holds Python objects"):
        compared(other, tiny_model)


def test_a_folder_of_the_contests_own_pairs_by_name(stored: Path, tiny_model: Path, tmp_path: Path) -> None:
    other = changed(stored, tmp_path / "other")
    (other / baseline.FILE).unlink()
    index = json.loads((stored / baseline.FILE).read_text())
    prompts = [request["prompt"] for request in index["requests"]]
    report = compared(other, tiny_model, PromptSpec(prompts=prompts, num_tokens=12))
    assert (report.verdict, report.total.num_rows) == (Verdict.PASS, 3)
    next((other / "file_npy").iterdir()).unlink()
    assert compared(other, tiny_model, PromptSpec(prompts=prompts, num_tokens=12)).verdict is Verdict.FAIL
    assert compared(other, tiny_model, PromptSpec(prompts=[[1, 2]], num_tokens=12)).verdict is Verdict.NOTHING
    with pytest.raises(InvalidConfig, match="--prompts"):
        compared(other, tiny_model)


@pytest.mark.parametrize("has_index", [True, False])
def test_an_interrupted_comparison_is_partial(
    stored: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_index: bool
) -> None:
    def interrupt(*_: Any) -> Outputs:
        raise KeyboardInterrupt

    other = changed(stored, tmp_path / "other")
    if not has_index:
        (other / baseline.FILE).unlink()
    monkeypatch.setattr(LocalSubject, "outputs", interrupt)
    report = compared(other, tiny_model, PromptSpec(prompts=[[1, 2]], num_tokens=12))
    assert (report.is_partial, report.verdict) == (True, Verdict.NOTHING)
    assert report.why.startswith("interrupted")


def test_a_folder_that_holds_something_is_never_written_to(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="is there already"):
        check_new(stored, "--save")
    check_new(tmp_path / "new", "--save")
