"""What became of the mutants: a row each, a summary of the rooms, and the same as JSON."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mutants.planting import Mutant
from mutants.stages import MIRROR, NEAR, REACH, Fate

_WIDTH = 60


class Report:
    """Written anew after each mutant, so that an interrupted run can go on."""

    def __init__(self, mutants: Sequence[Mutant], file: Path | None, resume: bool) -> None:
        self._mutants, self._file = mutants, file
        self._fates = _read(file, mutants) if file and resume and file.exists() else {}

    def add(self, fate: Fate) -> None:
        self._fates[fate.mutant.id] = fate
        print(self.row(fate.mutant), flush=True)
        if self._file:
            values = {"mutants": [*map(_values, self.fates())], "summary": summary(self.fates())}
            self._file.write_text(json.dumps(values, indent=1) + "\n")

    def row(self, mutant: Mutant) -> str:
        site = mutant.site
        change = f"{_cut(site.before)} -> {_cut(site.after)}"
        row = f"{mutant.id}  {site.path.removeprefix('src/chairlift/')}:{site.line}  {site.kind}  {change}"
        return f"{row}  {_ended(self._fates[mutant.id])}" if mutant.id in self._fates else row

    def fates(self) -> list[Fate]:
        return [self._fates[mutant.id] for mutant in self._mutants if mutant.id in self._fates]

    def missing(self) -> list[Mutant]:
        return [mutant for mutant in self._mutants if mutant.id not in self._fates]

    def survivors(self) -> list[Mutant]:
        """That have not met the tests which reach them."""
        return [fate.mutant for fate in self.fates() if fate.stage is None and fate.num_reaching is None]


def summary(fates: Sequence[Fate]) -> list[str]:
    lines = [f"{'room':10}{'mutants':>8}{MIRROR:>8}{NEAR:>8}{REACH:>8}{'survived':>10}"]
    rooms = dict.fromkeys(fate.mutant.room for fate in fates)
    for room in [*rooms, "all"]:
        stages = Counter(fate.stage for fate in fates if room in (fate.mutant.room, "all"))
        numbers = "".join(f"{stages[stage]:8}" for stage in (MIRROR, NEAR, REACH))
        lines.append(f"{room:10}{stages.total():8}{numbers}{stages[None]:10}")
    core = [fate for fate in fates if fate.mutant.room == "core"]
    if core:
        near = sum(fate.stage in (MIRROR, NEAR) for fate in core)
        lines.append(f"make near catches {near} of {len(core)} in the core, {near / len(core):.0%}")
    return lines


def _ended(fate: Fate) -> str:
    reaching = "" if fate.num_reaching is None else f" {fate.num_reaching} tests that run it"
    caught = f"{fate.stage}: {fate.by}" if fate.stage else f"survived{reaching}"
    return f"{caught}  {fate.seconds:.0f} s"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def _values(fate: Fate) -> dict[str, object]:
    site = fate.mutant.site
    return {
        "id": fate.mutant.id, "room": fate.mutant.room, "file": site.path, "line": site.line,
        "function": site.function, "kind": site.kind, "before": site.before, "after": site.after,
        "stage": fate.stage, "by": fate.by, "seconds": round(fate.seconds, 1), "num_reaching": fate.num_reaching,
    }  # fmt: skip


def _read(file: Path, mutants: Sequence[Mutant]) -> dict[str, Fate]:
    rows = {row["id"]: row for row in json.loads(file.read_text())["mutants"]}
    known = [(mutant, rows[mutant.id]) for mutant in mutants if mutant.id in rows]
    return {
        mutant.id: Fate(mutant, row["stage"], row["by"], row["seconds"], row["num_reaching"]) for mutant, row in known
    }
