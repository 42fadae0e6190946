"""The files of a run: the original's result file and log, and a summary that counts every request.

OUT/result_5.0_x.json    the answers, in the order in which they ended: input, resp_text, res_time, first_token_time
OUT/summary_5.0_x.json   sent, answered in full, short, lost and why
OUT/testLog/test_performance_2026-11-15-09_30.log
"""

import json
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from chairlift.contest.outcome import ContestOutcome, ContestRun
from chairlift.core.errors import InvalidConfig


def open_folder(folder: Path) -> None:
    try:
        (folder / "testLog").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidConfig(f"-O {folder}: cannot be written to: {error.strerror or error}") from error


def write_files(folder: Path, rate: float, run: ContestRun) -> Path:
    """Returns the path of the result file."""
    results = [outcome.result for outcome in run.outcomes if outcome.result is not None]
    _write(folder / f"summary_{rate}_x.json", run.to_json())
    path = folder / f"result_{rate}_x.json"
    _write(path, results)
    return path


def _write(path: Path, value: Any) -> None:
    try:
        path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be written: {error.strerror or error}") from error


class ContestLog:
    """The original's log, line by line."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "testLog" / f"test_performance_{datetime.now():%Y-%m-%d-%H_%M}.log"
        self._num_ended = 0

    def __enter__(self) -> "ContestLog":
        self._file = self.path.open("a", encoding="utf-8", buffering=1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def say(self, message: str) -> None:
        now = datetime.now()
        self._file.write(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d} - test_llama.log - INFO - {message}\n")

    def ended(self, outcome: ContestOutcome, num_planned: int) -> None:
        self._num_ended += 1
        result = outcome.result
        if result is None or outcome.reason:
            self.say(f"request {outcome.request.index + 1} {outcome.reason}")
        if result is not None:
            self.say(f"first_token_time is {result['first_token_time']}")
            self.say(f"{result}\nTest Progress --> {self._num_ended}/{num_planned}")
