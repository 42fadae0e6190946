"""How long a step will take at least, from what like steps took lately.

    forecast = line(tokens, context) x the least ratio that like steps had to their line lately

The line is fitted to the last steps, older ones counting less. Like steps compute about as many tokens; their ratios
have what is not linear: padding, other kernels, noise. A step unlike all before is forecast to take no time.
"""

from bisect import bisect_right
from collections import deque
from operator import itemgetter
from typing import NamedTuple

from chairlift.core.plan import StepPlan

StepTimes = tuple[tuple[int, float], ...]  # (tokens, seconds), tokens rising; past the last the last slope goes on


def seconds_at(times: StepTimes, num_tokens: int) -> float:
    """Fewer tokens than the table has take as long as its first."""
    if len(times) == 1 or num_tokens <= times[0][0]:
        return times[0][1]
    above = min(bisect_right(times, (num_tokens, float("inf"))), len(times) - 1)
    (low, low_s), (high, high_s) = times[above - 1], times[above]
    return low_s + (high_s - low_s) * (num_tokens - low) / (high - low)


_MEMORY = 256  # steps that count in the line
_RECENT = 16  # like steps whose least ratio counts
_FLOOR = 0.1  # of the mean step: a line may go below 0
_RIDGE = 1e-3  # of a squared mean: what hardly varied has no slope

_start = itemgetter(1)  # of a chunk


class StepSize(NamedTuple):
    """What the time of a step depends on."""

    num_tokens: int
    context: int  # tokens in the cache that its chunks attend to


def size_of(plan: StepPlan) -> StepSize:
    return StepSize(plan.num_tokens, sum(map(_start, plan.chunks)))


class StepForecast:
    def __init__(self) -> None:
        self._line = _Line()
        self._ratios: dict[int, deque[float]] = {}  # by likeness

    def seconds(self, size: StepSize) -> float:
        ratios = self._ratios.get(_likeness(size))
        return self._line.seconds(size) * min(ratios) if ratios else 0.0

    def learn(self, size: StepSize, seconds: float, at_most: bool) -> None:
        """A step of this size took so long, or `at_most` so long."""
        if at_most and not seconds < self.seconds(size):
            return  # says nothing new
        self._line.learn(size, seconds)
        ratios = self._ratios.setdefault(_likeness(size), deque(maxlen=_RECENT))
        ratios.append(seconds / self._line.seconds(size))


def _likeness(size: StepSize) -> int:
    """Equal for numbers of tokens that differ by an eighth at most; each number below 16 has its own."""
    shift = max(0, size.num_tokens.bit_length() - 4)
    return (size.num_tokens >> shift) + 16 * shift


class _Line:
    """Seconds by tokens and context, through means and (co)variances that forget."""

    def __init__(self) -> None:
        self._count = 0
        self._tokens = self._context = self._seconds = 0.0  # means
        self._tt = self._tc = self._cc = self._ts = self._cs = 0.0  # (co)variances
        self._token_s = self._context_s = 0.0  # slopes

    def seconds(self, size: StepSize) -> float:
        more = self._token_s * (size.num_tokens - self._tokens) + self._context_s * (size.context - self._context)
        return max(self._seconds + more, _FLOOR * self._seconds)

    def learn(self, size: StepSize, seconds: float) -> None:
        self._count = min(self._count + 1, _MEMORY)
        part = 1.0 / self._count
        tokens, context, longer = size.num_tokens - self._tokens, size.context - self._context, seconds - self._seconds
        self._tokens += part * tokens
        self._context += part * context
        self._seconds += part * longer
        rest = 1.0 - part
        self._tt = rest * (self._tt + part * tokens * tokens)
        self._tc = rest * (self._tc + part * tokens * context)
        self._cc = rest * (self._cc + part * context * context)
        self._ts = rest * (self._ts + part * tokens * longer)
        self._cs = rest * (self._cs + part * context * longer)
        self._fit()

    def _fit(self) -> None:
        tt = self._tt + _RIDGE * self._tokens * self._tokens
        cc = self._cc + _RIDGE * self._context * self._context + 1.0
        scale = tt * cc - self._tc * self._tc
        self._token_s = max(0.0, (self._ts * cc - self._cs * self._tc) / scale)
        self._context_s = max(0.0, (self._cs * tt - self._ts * self._tc) / scale)
