"""The figures of a run, live or simulated, as JSON and text, and the grammar of every `--slo`: `FIGURE=TIME` for each
request, `FIGURE_SHARE=TIME` for a percentile, joined by commas. Each figure's formula is in docs/figures.md.

Always: times are seconds; percentiles are exact, interpolated between the two nearest values. Knows nothing of how the
values were measured.
"""

import math
import re
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any, NamedTuple

from chairlift.core.errors import InvalidConfig

MAX_USERS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Spread:
    """How a figure is distributed over requests; all zero when there are none."""

    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    max: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        ordered = sorted(value for value in values if not math.isnan(value))
        if not ordered:
            return cls()
        p50, p90, p99 = (_quantile(ordered, share) for share in (0.5, 0.9, 0.99))
        return cls(math.fsum(ordered) / len(ordered), p50, p90, p99, ordered[-1])

    def in_ms(self, form: str = ".2f") -> list[str]:
        """Of a time that is never 0: a dash where it was never measured."""
        return ["-"] * len(self.__slots__) if self == Spread() else [f"{1e3 * each:{form}}" for each in astuple(self)]


def _quantile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True, slots=True)
class Level:
    """A number over the steps."""

    mean: float = 0.0
    max: int = 0


@dataclass(frozen=True, slots=True)
class Slo:
    """A service-level objective: a good request stays within every limit given."""

    ttft: float = math.inf
    tpot: float = math.inf
    e2e: float = math.inf

    @classmethod
    def parse(cls, text: str) -> "Slo":
        """From `ttft=0.5,tpot=50ms`."""
        limits = parse_slo_limits(text, cls.__slots__, (EVERY,))
        return cls(**{limit.figure: limit.limit_s for limit in limits})

    def __str__(self) -> str:
        return ",".join(f"{name}={getattr(self, name):g}s" for name in self.__slots__ if self._has(name))

    def _has(self, name: str) -> bool:
        return math.isfinite(getattr(self, name))


@dataclass(slots=True)
class Latencies:
    """Of finished requests, in order of finishing; eight bytes a figure."""

    queue_s: "array[float]"
    ttft_s: "array[float]"
    tpot_s: "array[float]"  # not a number where there was only one token
    e2e_s: "array[float]"

    @classmethod
    def none(cls) -> "Latencies":
        return cls(*(array("d") for _ in cls.__slots__))

    def num_good(self, slo: Slo) -> int:
        each = zip(self.ttft_s, self.tpot_s, self.e2e_s, strict=True)
        # A single token has no time between tokens to be too long.
        return sum(ttft <= slo.ttft and not tpot > slo.tpot and e2e <= slo.e2e for ttft, tpot, e2e in each)


@dataclass(frozen=True, slots=True)
class UserShare:
    """One user's demand and service."""

    requests: int
    finished: int
    prompt_tokens: int
    output_tokens: int
    ttft_mean_s: float
    e2e_mean_s: float
    competing_s: float  # with a request waiting while another user had one waiting too
    competing_tokens: int  # served meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    requests: int
    finished: int
    failed: int
    aborted: int
    steps: int
    decode_steps: int  # that computed a next token for at least one request
    total_s: float
    prompt_tokens: int
    output_tokens: int
    requests_per_s: float
    output_tokens_per_s: float
    ttft_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    queue_s: Spread
    preemptions: int
    swaps: int
    moves: int  # of requests to another replica
    kv_moves: int  # of these, with keys and values
    replica_s: float | None  # seconds that replicas were there, of all together; None: an engine by itself
    cache_hit_tokens: int
    cache_missed_tokens: int  # whose blocks were found, and not the state or windows after them
    blocks: Level  # in use
    blocks_saved: Level  # by sharing: what all requests' tables list, less the blocks in use
    rule_failures: tuple[str, ...]  # errors of scheduling rules, which were replaced
    slo: Slo | None
    good: int | None  # finished requests within the slo
    goodput_per_s: float | None
    fairness: float
    users: Mapping[str, UserShare]

    def _num_replicas(self) -> float:
        return 0.0 if self.replica_s is None or not self.total_s else self.replica_s / self.total_s

    def to_json(self) -> dict[str, Any]:
        """Plain values; `slo` as it was given."""
        return asdict(self) | {"slo": None if self.slo is None else str(self.slo)}

    def to_text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        gone = [f"{count} {word}" for count, word in ((self.aborted, "aborted"), (self.failed, "failed")) if count]
        yield line("requests", f"{self.requests}: {', '.join([f'{self.finished} finished', *gone])}")
        yield line("total time", f"{self.total_s:.3f} s in {self.steps} steps, {self.decode_steps} of them decoding")
        rates = f"{self.requests_per_s:.2f} requests/s, {self.output_tokens_per_s:.1f} output tokens/s"
        yield line("throughput", rates)
        missed = f", {self.cache_missed_tokens} more for some layers alone" if self.cache_missed_tokens else ""
        prompt = f"{self.prompt_tokens} prompt ({self.cache_hit_tokens} cached{missed})"
        yield line("tokens", f"{prompt}, {self.output_tokens} output")
        yield line("preemptions", f"{self.preemptions}, of them {self.swaps} swapped")
        if self.moves:
            kept = f", {self.kv_moves} with keys and values" if self.kv_moves else ""
            yield line("moves", f"{self.moves} of requests to another replica{kept}")
        if self.replica_s is not None:
            yield line("replicas", f"{self._num_replicas():.1f} on average, {self.replica_s:.0f} s of all together")
        yield line("blocks", f"{_level(self.blocks)} in use; sharing saved {_level(self.blocks_saved)}")
        if self.slo is not None:
            yield line("goodput", f"{self.goodput_per_s:.2f} requests/s: {self.good} within {self.slo}")
        yield line("fairness", f"{self.fairness:.3f} between {len(self.users)} user{'s' * (len(self.users) != 1)}")
        for failure in self.rule_failures:
            yield line("replaced", failure)
        yield ""
        yield columns("milliseconds", "mean", "p50", "p90", "p99", "max")
        for name, spread in (("ttft", self.ttft_s), ("tpot", self.tpot_s), ("e2e", self.e2e_s)):
            yield columns(name, *spread.in_ms())
        yield columns("queue", *(f"{1e3 * value:.2f}" for value in astuple(self.queue_s)))
        if len(self.users) > 1:
            yield ""
            yield from self._user_lines()

    def _user_lines(self) -> Iterator[str]:
        yield columns("user", "requests", "prompt", "output", "ttft ms", "e2e ms")
        largest = sorted(self.users.items(), key=lambda item: (-item[1].output_tokens, item[0]))
        for name, share in largest[:MAX_USERS_SHOWN]:
            times = (f"{1000 * share.ttft_mean_s:.2f}", f"{1000 * share.e2e_mean_s:.2f}")
            numbers = (str(share.requests), str(share.prompt_tokens), str(share.output_tokens))
            yield columns(name or "(none)", *numbers, *times)
        if len(largest) > MAX_USERS_SHOWN:
            yield f"... and {len(largest) - MAX_USERS_SHOWN} more"


def _level(level: Level) -> str:
    return f"{level.mean:.1f} (at most {level.max})"


def fairness(shares: Sequence[UserShare]) -> float:
    """Jain's index over the service rates of competing users, weighted by how long they competed."""
    competing = [share for share in shares if share.competing_s > 0]
    num_tokens = sum(share.competing_tokens for share in competing)
    if not num_tokens:
        return 1.0
    seconds = math.fsum(share.competing_s for share in competing)
    return num_tokens**2 / (seconds * math.fsum(share.competing_tokens**2 / share.competing_s for share in competing))


def line(name: str, text: str) -> str:
    return f"{name:<14}{text}"


def columns(name: str, *cells: str, first: int = 14, width: int = 12) -> str:
    return f"{name:<{first}}" + "".join(f"{cell:>{width}}" for cell in cells)


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
