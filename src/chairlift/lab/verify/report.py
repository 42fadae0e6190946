"""The result of a verification: a verdict with its reason, as a table and as JSON."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from chairlift.config.version import VERSION
from chairlift.lab.verify.cases import Case
from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.drive import MIXED

Watch = Callable[[str, int, int], None]  # told the part that runs, and how much of how much is done; 0 of 0: unknown

LEAST_ROWS = 50  # fewer compared rows prove nothing


class Verdict(Enum):
    PASS = "pass"
    FAIL = "fail"
    NOTHING = "proves nothing"

    @property
    def exit_code(self) -> int:
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.NOTHING: 2}[self]


@dataclass(slots=True)
class Comparison:
    name: str
    deviation: Deviation
    happened: dict[str, int] = field(default_factory=dict)  # what the scheduler did, and how often
    proof: str = ""  # what of it must have happened at least once; empty: nothing in particular
    is_control: bool = False

    @property
    def is_reached(self) -> bool:
        return not self.proof or self.happened.get(self.proof, 0) > 0


@dataclass(slots=True)
class VerifyReport:
    against: str
    about: dict[str, Any]  # model, dtype, device, ...
    comparisons: list[Comparison] = field(default_factory=list)
    verdict: Verdict = Verdict.NOTHING
    why: str = "interrupted before anything was compared"
    notes: list[str] = field(default_factory=list)
    is_partial: bool = False
    num_requests: int = 0
    adapters: dict[str, int] = field(default_factory=dict)  # how many of the requests have each

    def count(self, cases: Sequence[Case], names: Sequence[str] = ()) -> None:
        """Tells how many requests have adapters. `names`: of those there are."""
        self.num_requests = len(cases)
        self.adapters = dict.fromkeys(names, 0)
        for name in (case.adapter for case in cases if case.adapter):
            self.adapters[name] = self.adapters.get(name, 0) + 1

    def settle(self, verdict: Verdict, why: str) -> "VerifyReport":
        self.verdict, self.why = verdict, why
        return self

    def settle_batch(
        self, is_exact: bool, has_control: bool, unit: str, too_far: str, within: str, no_control: str
    ) -> None:
        """The verdict on requests alone against among others; too_far is empty where all is within the tolerance."""
        found, own = self.total, self.own
        first = next((f"; first in {each.name}: {each.deviation.first}" for each in own if each.deviation.first), "")
        rows = "rows" if unit == "rows" else f"{unit}' log-probabilities"
        differing = f"{found.num_differing:,} of {found.num_rows:,} {rows}"
        differing += f" and {found.num_other_texts} of {found.num_texts} texts"
        if is_exact and found.has_difference:
            self.settle(Verdict.FAIL, f"{differing} differ from the same request alone, in spite of --exact{first}")
        elif too_far:
            self.settle(Verdict.FAIL, f"{differing} differ, {too_far}")
        elif self.is_partial:
            self.settle(Verdict.NOTHING, f"interrupted; until then {differing} differed")
        elif found.num_rows < LEAST_ROWS:
            self.settle_too_few(found.num_rows, unit)
        elif not has_control:
            self.settle(Verdict.NOTHING, no_control)
        elif found.has_difference:
            self.settle(Verdict.PASS, f"{differing} differ from the same request alone, {within}")
        else:
            self.settle(Verdict.PASS, f"{found.num_rows:,} {unit} and {found.num_texts} texts, no bit differs")

    def settle_too_few(self, count: int, unit: str, hint: str = "give more --num-prompts or --tokens") -> None:
        self.settle(Verdict.NOTHING, f"{count} {unit} are too little, {LEAST_ROWS} is the least; {hint}")

    @property
    def own(self) -> list[Comparison]:
        """Without controls."""
        return [each for each in self.comparisons if not each.is_control]

    @property
    def total(self) -> Deviation:
        """Of everything but controls."""
        total = Deviation()
        for each in self.own:
            total.add(each.deviation)
        return total

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "chairlift-verify-report",
            "version": 1,
            "chairlift": VERSION,
            "against": self.against,
            "about": self.about,
            "verdict": self.verdict.value,
            "exit_code": self.verdict.exit_code,
            "why": self.why,
            "partial": self.is_partial,
            "notes": self.notes,
            "requests": self.num_requests,
            "adapters": self.adapters,
            "total": self.total.to_json(),
            "lines": [
                {"name": each.name, "control": each.is_control, "reached": each.is_reached, "happened": each.happened}
                | each.deviation.to_json()
                for each in self.comparisons
            ],
        }

    def _with_adapters(self) -> str:
        told = f"{sum(self.adapters.values())} of {self.num_requests} requests had adapters"
        each = ", ".join(f"{name} {count}" for name, count in self.adapters.items())
        mixed = sum(comparison.happened.get(MIXED, 0) for comparison in self.own)
        return f"{told} ({each})" + (f", and {mixed:,} steps were of several adapters" if mixed else "")

    def to_text(self) -> str:
        about = ", ".join(str(value) for value in self.about.values() if value not in ("", None, False))
        shown = [f"{self.against}: {about}"]
        if self.comparisons:
            own, controls = self.own, [each for each in self.comparisons if each.is_control]
            total = [Comparison("all", self.total)] if self.against == "batch" and len(own) > 1 else []
            shown += ["", _table([*own, *total, *controls])]
        shown += ["", *([self._with_adapters()] if self.adapters else []), *self.notes]
        partial = "PARTIAL, " if self.is_partial else ""
        return "\n".join([*shown, f"{partial}{self.verdict.value}: {self.why}"])


_HEADS = (
    "",
    "rows",
    "differing",
    "max error",
    "spreads",
    "mean error",
    "top-1",
    "mean KL",
    "tokens differ",
    "texts differ",
    "",
)


def _table(comparisons: Sequence[Comparison]) -> str:
    cells = [_HEADS, *map(_cells, comparisons)]
    first, *widths, _ = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *numbers, last in cells:
        padded = map(str.rjust, numbers, widths)
        lines.append("  ".join([name.ljust(first), *padded, last]).rstrip())
    return "\n".join(lines)


def _cells(comparison: Comparison) -> tuple[str, ...]:
    f = comparison.deviation
    happened = f"{comparison.proof} {comparison.happened.get(comparison.proof, 0)}" if comparison.proof else ""
    return (
        comparison.name,
        f"{f.num_rows:,}",
        f"{f.num_differing:,}",
        f"{f.max_error:.2g}",
        f"{f.max_spreads:.2g}",
        f"{f.mean_error:.2g}",
        "-" if f.same_top is None else f"{100 * f.same_top:.2f}%",
        f"{f.mean_kl:.2g}",
        _share(f.num_other_tokens, f.num_tokens),
        _share(f.num_other_texts, f.num_texts),
        happened if comparison.is_reached else f"NOT REACHED: {happened}",
    )


def _share(num: int, total: int) -> str:
    if not total:
        return "-"
    return f"{num:,} of {total:,}" if num else f"none of {total:,}"
