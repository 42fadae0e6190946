"""What is kept of the last minutes is bounded, and what is gone is not made up."""

import pytest

from chairlift.telemetry.watch import step_log
from chairlift.telemetry.watch.step_log import CommitRecord, StepLog


def test_only_the_last_records_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_log, "MAX_RECORDS", 5)
    kept = StepLog()
    for step in range(12):
        kept.add(CommitRecord(float(step), step))
    assert kept.total == 12
    for mark in range(7):
        assert kept.since(mark) is None
    for mark in range(7, 13):
        records = kept.since(mark)
        assert records is not None
        assert [record.at for record in records] == list(range(mark, 12))
