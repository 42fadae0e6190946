"""The files of a run: the original's result file and log, and a summary that counts every request.

OUT/result_5.0_x.json    the answers, in the order in which they ended: input, resp_text, res_time, first_token_time
testLog/test_performance_2026-11-15-09_30.log
testLog/summary_5.0_x_2026-11-15-09_30_12.json    sent, answered in full, short, lost and why

Always: OUT gets the result file alone, as the contest's own tools read all that is in it. testLog is in the current
folder, as the original's.
"""

import json
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from chairlift.core.errors import InvalidConfig
from chairlift.lab.contest.outcome import ContestOutcome, ContestRun

LOGS = Path("testLog")


def open_folders(out: Path) -> None:
    for folder, name in ((out, f"-O {out}"), (LOGS, f"{LOGS} in the current folder")):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidConfig(f"{name}: cannot be written to: {error.strerror or error}") from error


def write_files(out: Path, rate: float, run: ContestRun) -> tuple[Path, Path]:
    """Returns the paths of the result file and of the summary."""
    result, summary = out / f"result_{rate}_x.json", LOGS / f"summary_{rate}_x_{datetime.now():%Y-%m-%d-%H_%M_%S}.json"
    _write(summary, run.to_json())
    _write(result, [outcome.result for outcome in run.outcomes if outcome.result is not None])
    return result, summary


def _write(path: Path, value: Any) -> None:
    try:
        path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be written: {error.strerror or error}") from error


class ContestLog:
    """The original's log, line by line."""

    def __init__(self) -> None:
        self.path = LOGS / f"test_performance_{datetime.now():%Y-%m-%d-%H_%M}.log"
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
