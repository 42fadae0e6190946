"""Targets: limits on percentiles of latencies, as `ttft_p99=500ms,tpot_p50=30ms`."""

from dataclasses import dataclass

from chairlift.telemetry.report import Report, parse_slo_limits

FIGURES = ("ttft", "tpot", "e2e", "queue")


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    figure: str
    share: str
    limit_s: float

    def value_s(self, report: Report) -> float:
        value: float = getattr(getattr(report, f"{self.figure}_s"), self.share)
        return value

    def used(self, report: Report) -> float:
        """The used part of the limit; above 1 it was missed."""
        return self.value_s(report) / self.limit_s

    def __str__(self) -> str:
        return f"{self.figure}_{self.share}={1e3 * self.limit_s:g}ms"


@dataclass(frozen=True, slots=True)
class Targets:
    each: tuple[LatencyTarget, ...]

    @classmethod
    def parse(cls, text: str) -> "Targets":
        return cls(tuple(LatencyTarget(*limit) for limit in parse_slo_limits(text, FIGURES)))

    def used(self, report: Report) -> float:
        """The largest part of any limit: at most 1 when all are met."""
        return max(target.used(report) for target in self.each)

    def __str__(self) -> str:
        return ",".join(map(str, self.each))
