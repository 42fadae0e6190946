"""How long steps take by the tokens they compute: a table of what was measured, linear in between."""

from bisect import bisect_right

StepTimes = tuple[tuple[int, float], ...]  # (tokens, seconds), tokens rising; past the last the last slope goes on


def seconds_at(times: StepTimes, num_tokens: int) -> float:
    """Fewer tokens than the table has take as long as its first."""
    if len(times) == 1 or num_tokens <= times[0][0]:
        return times[0][1]
    above = min(bisect_right(times, (num_tokens, float("inf"))), len(times) - 1)
    (low, low_s), (high, high_s) = times[above - 1], times[above]
    return low_s + (high_s - low_s) * (num_tokens - low) / (high - low)
