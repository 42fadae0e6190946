"""What a verification found: a verdict with its reason, a table for people, JSON for programs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from chairlift.config.version import VERSION
from chairlift.verify.deviation import Deviation

LEAST_ROWS = 50  # fewer compared rows are too little to say anything


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
    happened: dict[str, int] = field(default_factory=dict)  # what the run went through
    proof: str = ""  # which of it makes the line worth anything; empty: the run as such
    is_control: bool = False

    @property
    def is_reached(self) -> bool:
        return not self.proof or self.happened.get(self.proof, 0) > 0


@dataclass(slots=True)
class VerifyReport:
    against: str
    about: dict[str, Any]  # of what: model, dtype, device, ...
    comparisons: list[Comparison] = field(default_factory=list)
    verdict: Verdict = Verdict.NOTHING
    why: str = "interrupted before anything was compared"
    notes: list[str] = field(default_factory=list)
    is_partial: bool = False

    def settle(self, verdict: Verdict, why: str) -> "VerifyReport":
        self.verdict, self.why = verdict, why
        return self

    @property
    def total(self) -> Deviation:
        """Of everything but controls."""
        return add_up([comparison.deviation for comparison in self.comparisons if not comparison.is_control])

    @property
    def first_difference(self) -> str:
        return next(
            (f"{x.name}: {x.deviation.first}" for x in self.comparisons if x.deviation.first and not x.is_control), ""
        )

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
            "total": self.total.to_json(),
            "lines": [
                {"name": comparison.name, "control": comparison.is_control, "reached": comparison.is_reached}
                | {"happened": comparison.happened}
                | comparison.deviation.to_json()
                for comparison in self.comparisons
            ],
        }

    def to_text(self) -> str:
        about = ", ".join(str(value) for value in self.about.values() if value not in ("", None, False))
        shown = [f"{self.against}: {about}"]
        if self.comparisons:
            own = [comparison for comparison in self.comparisons if not comparison.is_control]
            total = [Comparison("all", self.total)] if self.against == "batch" and len(own) > 1 else []
            shown += [
                "",
                _table([*own, *total, *(comparison for comparison in self.comparisons if comparison.is_control)]),
            ]
        shown += ["", *self.notes]
        partial = "PARTIAL, " if self.is_partial else ""
        return "\n".join([*shown, f"{partial}{self.verdict.value}: {self.why}"])


def add_up(parts: Sequence[Deviation]) -> Deviation:
    total = Deviation()
    for part in parts:
        for name in Deviation.__dataclass_fields__:
            mine, its = getattr(total, name), getattr(part, name)
            if name == "first":
                total.first = mine or its
            else:
                setattr(total, name, max(mine, its) if name.startswith("max_") else mine + its)
    return total


_HEADS = ("", "rows", "differing", "max error", "spreads", "mean error", "top-1", "mean KL", "tokens", "texts", "")


def _table(comparisons: Sequence[Comparison]) -> str:
    cells = [_HEADS, *(_cells(comparison) for comparison in comparisons)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(_joined(row, widths) for row in cells)


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *numbers, last = row
    padded = [number.rjust(width) for number, width in zip(numbers, widths[1:-1], strict=True)]
    return "  ".join([name.ljust(widths[0]), *padded, last]).rstrip()


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
        f"{f.num_other_tokens:,} of {f.num_tokens:,}" if f.num_tokens else "-",
        f"{f.num_other_texts} of {f.num_texts}" if f.num_texts else "-",
        happened if comparison.is_reached else f"NOT REACHED: {happened}",
    )
