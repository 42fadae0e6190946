"""Rows that a server writes (`serve --save-logits`), given to outputs by all tokens before them."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify.cases import Case
from chairlift.lab.verify.output import Outputs, SampleKey
from chairlift.telemetry import logit_files

_PATIENCE_S = 10.0  # without another row that is wanted
_POLL_S = 0.05


class ServedRows:
    def __init__(self, folder: Path) -> None:
        """Rows that are there already are of other requests."""
        if not (folder / logit_files.FOLDER).is_dir():
            raise InvalidConfig(f"--logits {folder}: no server writes there; start it with --save-logits {folder}")
        self.folder = folder
        self._before = frozenset(logit_files.read_index(folder))
        self.num_expected = self.num_missing = 0

    def give(self, cases: Sequence[Case], outputs: Outputs) -> None:
        """Waits for the rows of these outputs, as long as more of them come. Those that never do are counted."""
        wanted = list(_wanted(cases, outputs))
        files = self._wait(Counter(prefix for prefix, _, _ in wanted))
        for prefix, key, position in wanted:
            self.num_expected += 1
            if files.get(prefix):
                outputs[key].rows[position] = logit_files.read(self.folder / logit_files.FOLDER / files[prefix].pop(0))
            else:
                self.num_missing += 1

    def _wait(self, wanted: Counter[str]) -> dict[str, list[str]]:
        """New files by prefix."""
        num_missing, deadline = -1, 0.0
        while True:
            new = {n: p for n, p in logit_files.read_index(self.folder).items() if n not in self._before}
            missing = (wanted - Counter(new.values())).total()  # rows of other requests are no sign of these
            if missing != num_missing:
                num_missing, deadline = missing, time.monotonic() + _PATIENCE_S
            if not missing or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        files: dict[str, list[str]] = {}
        for name, prefix in new.items():
            files.setdefault(prefix, []).append(name)
        return files


def _wanted(cases: Sequence[Case], outputs: Outputs) -> Iterator[tuple[str, SampleKey, int]]:
    for key, output in sorted(outputs.items()):
        tokens = [*cases[key.case].prompt, *output.tokens]
        for position in range(output.num_prompt - 1, len(tokens) - 1):
            if position % logit_files.EVERY == 0:
                yield logit_files.prefix_digest(tokens[: position + 1]), key, position
