"""Rows of a server's folder, given to what it answered."""

from pathlib import Path

import numpy as np
import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.core.params import SamplingParams
from chairlift.lab.verify import served
from chairlift.lab.verify.cases import Case
from chairlift.lab.verify.output import Outputs, SampleKey, SampleOutput
from chairlift.lab.verify.served import ServedRows
from chairlift.telemetry import logit_files
from chairlift.telemetry.logit_files import name_of, path_of, prefix_digest

GREEDY = SamplingParams(temperature=0.0, max_tokens=3)
ALIKE = [Case((*range(100), last), GREEDY) for last in (1, 2)]  # the same beginning, so the same name


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_PATIENCE_S", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    logit_files.make_folder(tmp_path / "rows")
    return tmp_path / "rows"


def wrote(folder: Path, stamp: int, case: Case, value: float) -> None:
    path = path_of(folder, stamp, name_of(case.prompt, [], 100))
    logit_files.write(path, np.full(4, value, np.float32))
    logit_files.add_to_index(folder, path.name, prefix_digest(case.prompt))


def answers() -> Outputs:
    return {SampleKey(i, 0): SampleOutput(101, [5, 6, 7]) for i in range(len(ALIKE))}


def test_rows_of_texts_that_begin_alike_go_to_their_own(folder: Path) -> None:
    rows, outputs = ServedRows(folder), answers()
    wrote(folder, 1, ALIKE[1], 20.0)
    wrote(folder, 2, ALIKE[0], 10.0)
    rows.give(ALIKE, outputs)
    assert [output.rows[100][0] for output in outputs.values()] == [10.0, 20.0]
    assert (rows.num_expected, rows.num_missing) == (2, 0)


def test_rows_of_earlier_requests_are_not_taken(folder: Path) -> None:
    wrote(folder, 1, ALIKE[0], 1.0)
    rows, outputs = ServedRows(folder), answers()
    wrote(folder, 2, ALIKE[0], 2.0)
    rows.give(ALIKE, outputs)
    assert outputs[SampleKey(0, 0)].rows[100][0] == 2.0
    assert (rows.num_expected, rows.num_missing) == (2, 1)


def test_rows_of_other_traffic_prolong_no_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_PATIENCE_S", 10.0)
    now, others = 0.0, [Case((*range(100), 1000 + n), GREEDY) for n in range(50)]

    def sleep(_: float) -> None:
        nonlocal now
        now += 3.0
        wrote(folder, len(others), others.pop(), 0.0)

    monkeypatch.setattr(served.time, "sleep", sleep)
    monkeypatch.setattr(served.time, "monotonic", lambda: now)
    rows = ServedRows(folder)
    rows.give(ALIKE, answers())
    assert (rows.num_missing, len(others)) == (2, 46)


def test_a_folder_without_a_server_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=f"start it with --save-logits {tmp_path}"):
        ServedRows(tmp_path)
