"""The grammar of every `--slo`: `FIGURE=TIME` for each request, `FIGURE_SHARE=TIME` for a percentile, joined by commas.

Always: times are seconds above 0, and each figure with its share is named once.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig

EVERY = "max"  # the share where none is given: each request
SHARES = ("mean", "p50", "p90", "p99", EVERY)
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3}
_LIMIT = re.compile(r"([a-z0-9]+)(?:_([a-z0-9]+))?\s*=\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|ms|)")


class SloLimit(NamedTuple):
    figure: str
    share: str
    limit_s: float


def parse_slo_limits(text: str, figures: Collection[str], shares: Collection[str] = SHARES) -> tuple[SloLimit, ...]:
    """`figures`, `shares`: those that the command knows."""
    limits = tuple(_limit(part.strip(), figures, shares) for part in text.split(","))
    if len({limit[:2] for limit in limits}) < len(limits):
        raise InvalidConfig(f"--slo {text}: gives a figure twice")
    return limits


def _limit(text: str, figures: Collection[str], shares: Collection[str]) -> SloLimit:
    match = _LIMIT.fullmatch(text)
    figure, share, number, unit = match.groups() if match else ("", "", "0", "")
    limit = SloLimit(figure, share or EVERY, float(number) * _UNITS[unit])
    if figure not in figures or limit.share not in shares or not limit.limit_s > 0:
        raise InvalidConfig(f"--slo {text!r} is not known; give {_forms(shares)}; figures: {', '.join(figures)}")
    return limit


def _forms(shares: Collection[str]) -> str:
    each = "a time above 0 for each request, as in ttft=500ms"
    if len(shares) == 1:
        return f"{each} (requests are counted one by one here: no percentiles)"
    return f"{each}, or for a share of them, as in ttft_p99=500ms; shares: {', '.join(shares)}"
