"""The writer of rows: what a full or slow disk costs, and that it costs the engine nothing."""

import logging
import threading
from pathlib import Path

import numpy as np
import pytest

from chairlift.telemetry import logit_files
from chairlift.telemetry.logit_files import Name, read_index
from chairlift.telemetry.row_writer import RowWriter, SavedRow
from fakes.patience import wait_until

ROW = np.arange(4, dtype=np.float32)


def row(index: int) -> SavedRow:
    return SavedRow(index, Name("1.02.0", 100), f"prefix {index}", ROW)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Requests for which the disk has no room."""
    refused: set[int] = set()
    write = logit_files.write

    def refusing(path: Path, values: logit_files.Logits) -> None:
        if logit_files.request_of(path.name) in refused:
            raise OSError(28, "No space left on device")
        write(path, values)

    monkeypatch.setattr(logit_files, "write", refusing)
    return refused


def test_rows_are_written_and_then_indexed(tmp_path: Path) -> None:
    writer = RowWriter(tmp_path / "rows")
    for index in (7, 8):
        writer.put(row(index))
    writer.close()
    assert read_index(tmp_path / "rows") == {f"100000000{n}_1.02.0_100.npy": f"prefix {n}" for n in (7, 8)}
    np.testing.assert_array_equal(logit_files.read(tmp_path / "rows/file_npy/1000000007_1.02.0_100.npy"), ROW)
    assert (tmp_path / "rows").stat().st_mode & 0o077 == 0


def test_a_full_disk_drops_rows_tells_how_many_and_later_ones_are_tried(
    tmp_path: Path, full: set[int], caplog: pytest.LogCaptureFixture
) -> None:
    full |= {1, 2}
    writer = RowWriter(tmp_path / "rows")
    with caplog.at_level(logging.WARNING):
        for index in (1, 2, 3):
            writer.put(row(index))
        writer.close()
    assert list(read_index(tmp_path / "rows").values()) == ["prefix 3"]
    told = [record.args for record in caplog.records]
    assert sum(count for count, _, _ in told) == 2  # type: ignore[misc,union-attr]
    assert "No space left on device" in caplog.text and str(tmp_path / "rows") in caplog.text


def test_a_failed_write_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, target: Path) -> None:
        raise OSError(5, "Input/output error")

    logit_files.make_folder(tmp_path / "rows")
    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError):
        logit_files.write(tmp_path / "rows/file_npy/1_1_0.npy", ROW)
    assert list((tmp_path / "rows/file_npy").iterdir()) == []


def test_a_slow_disk_holds_up_the_writer_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, has_begun, write = threading.Event(), threading.Event(), logit_files.write

    def slow(path: Path, values: logit_files.Logits) -> None:
        has_begun.set()
        go_on.wait()
        write(path, values)

    monkeypatch.setattr(logit_files, "write", slow)
    writer = RowWriter(tmp_path / "rows", max_waiting=3 * ROW.nbytes)
    with caplog.at_level(logging.WARNING):
        for index in range(10):  # returns though nothing is written
            writer.put(row(index))
        has_begun.wait()
        assert read_index(tmp_path / "rows") == {}
        go_on.set()
        wait_until(lambda: len(read_index(tmp_path / "rows")) == 3)
        writer.put(row(99))
        writer.close()
    assert list(read_index(tmp_path / "rows").values()) == ["prefix 0", "prefix 1", "prefix 2", "prefix 99"]
    assert sum(record.args[0] for record in caplog.records) == 7  # type: ignore[index,misc]
    assert "slower than the engine" in caplog.text


def test_an_unfinished_line_of_the_index_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"file": "a.npy", "prefix": "1"}\n{"file": "../b.npy", "prefix": "2"}\n{"fi')
    assert read_index(tmp_path) == {"a.npy": "1"}
    assert read_index(tmp_path / "nowhere") == {}
