"""A range of numbers along a line of pixels, with round numbers to label it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NUM_TICKS = 5


@dataclass(frozen=True, slots=True)
class Axis:
    low: float
    high: float
    start: float  # pixels
    end: float
    is_log: bool = False

    @classmethod
    def over(cls, low: float, high: float, start: float, end: float, is_log: bool = False) -> "Axis":
        """Widened if it would have no length."""
        if high <= low:
            low, high = (low / 2, low * 2) if is_log else (low, low + 1.0)
        return cls(low, high, start, end, is_log)

    def widened(self, below: float, above: float) -> "Axis":
        """By shares of its length, on the same pixels."""
        return Axis(self.value(-below), self.value(1 + above), self.start, self.end, self.is_log)

    def at(self, value: float) -> float:
        return self.start + (self.end - self.start) * self.share(value)

    def share(self, value: float) -> float:
        if self.is_log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, share: float) -> float:
        if self.is_log:
            return self.low * float((self.high / self.low) ** share)
        return self.low + (self.high - self.low) * share

    def ticks(self) -> Iterator[float]:
        """Round numbers in its range."""
        if self.is_log:
            return self._log_ticks()
        step = round_step((self.high - self.low) / NUM_TICKS)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return (index * step for index in range(first, last + 1))

    def _log_ticks(self) -> Iterator[float]:
        decades = math.log10(self.high / self.low)
        factors = (1, 2, 5) if decades < 3 else (1,)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks = (factor * 10.0**power for power in powers for factor in factors)
        return (tick for tick in ticks if self.low <= tick <= self.high)


def round_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def labels(values: Sequence[float]) -> list[str]:
    """As text, with enough digits to differ."""
    texts = [shown(value) for value in values]
    digits = 3
    while len(set(texts)) < len(set(values)):
        digits += 1
        texts = [f"{value:,.{digits}g}" for value in values]
    return texts


def shown(value: float) -> str:
    """Three digits, or the whole part."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
