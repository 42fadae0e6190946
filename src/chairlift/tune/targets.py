"""What a workload must see: limits on percentiles of its latencies, as `ttft_p99=500ms,tpot_p50=30ms`.

Always: limits are seconds above 0, each figure is named once.
"""

import re
from dataclasses import dataclass

from chairlift.core.errors import InvalidConfig
from chairlift.telemetry.report import Report

FIGURES = ("ttft", "tpot", "e2e", "queue")
SHARES = ("mean", "p50", "p90", "p99", "max")
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3}
_VALUE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(s|ms|)")


@dataclass(frozen=True, slots=True)
class Target:
    figure: str
    share: str
    limit_s: float

    def value_s(self, report: Report) -> float:
        value: float = getattr(getattr(report, f"{self.figure}_s"), self.share)
        return value

    def used(self, report: Report) -> float:
        """The part of the limit that a run needed; above 1 it was missed."""
        return self.value_s(report) / self.limit_s

    def __str__(self) -> str:
        return f"{self.figure}_{self.share}={1e3 * self.limit_s:g}ms"


@dataclass(frozen=True, slots=True)
class Targets:
    each: tuple[Target, ...]

    @classmethod
    def parse(cls, text: str) -> "Targets":
        found = [_target(part.strip()) for part in text.split(",")]
        names = [(target.figure, target.share) for target in found]
        if len(set(names)) < len(names):
            raise InvalidConfig(f"--slo {text}: gives a figure twice")
        return cls(tuple(found))

    def used(self, report: Report) -> float:
        """The largest part of any limit: at most 1 when all are met."""
        return max(target.used(report) for target in self.each)

    def __str__(self) -> str:
        return ",".join(map(str, self.each))


def _target(text: str) -> Target:
    name, _, value = text.partition("=")
    figure, _, share = name.strip().rpartition("_")
    match = _VALUE.fullmatch(value.strip())
    limit = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if figure not in FIGURES or share not in SHARES or not limit > 0:
        raise InvalidConfig(
            f"--slo {text!r} is not known; give FIGURE_SHARE=TIME as in ttft_p99=500ms, with a time above 0; "
            f"figures: {', '.join(FIGURES)}; shares: {', '.join(SHARES)}"
        )
    return Target(figure, share, limit)
