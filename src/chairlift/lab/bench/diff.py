"""Two results side by side: every figure of both and its change."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chairlift.core.errors import InvalidConfig
from chairlift.lab.bench.figures import LATENCIES
from chairlift.lab.bench.result import KIND, VERSION

COUNTS = (
    "requests", "sent", "full", "short", "failed", "cut", "unsent", "chunks", "prompt_tokens", "cached_tokens",
    "output_tokens",
)  # fmt: skip
RATES = (
    "total_s", "requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "peak_output_tokens_per_s",
    "goodput_per_s", "max_concurrency",
)  # fmt: skip
_MOST_NAMED = 4
SHARES = ("mean", "p50", "p90", "p99", "max")
MUST_MATCH = ("workload", "arrivals", "limit", "divide_lengths", "max_length", "seed")


def diff(first: Path, second: Path) -> str:
    return "\n".join(_lines(_load(first), _load(second), first, second))


def _load(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text())
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not JSON: {error}") from error
    if not isinstance(result, dict) or result.get("kind") != KIND or not isinstance(result.get("figures"), dict):
        raise InvalidConfig(f"{path} is not the bench.json of a load test")
    if result.get("version") != VERSION:
        raise InvalidConfig(f"{path} has version {result.get('version')!r}; this release reads version {VERSION}")
    if not isinstance(result.get("about"), dict):
        raise InvalidConfig(f"{path} has no `about`: a part of it is missing")
    for name in LATENCIES:
        spread = result["figures"].get(name)
        if not isinstance(spread, dict) or not all(isinstance(spread.get(share), int | float) for share in SHARES):
            raise InvalidConfig(f"{path} has no {name} of {', '.join(SHARES)} in `figures`: a part of it is missing")
    return result


def _lines(a: dict[str, Any], b: dict[str, Any], first: Path, second: Path) -> Iterator[str]:
    for name, path, result in (("A", first, a), ("B", second, b)):
        about = result["about"]
        yield f"{name}  {path}: {asked(about)} at {about.get('url')}, {about.get('at')}"
        if result.get("partial"):
            yield f"   PARTIAL: {result['partial']}"
        yield from (f"   DOUBT: {doubt}" for doubt in result.get("client", {}).get("doubts", ()))
    unlike = [name for name in MUST_MATCH if a["about"].get(name) != b["about"].get(name)]
    if unlike:
        yield f"   NOT THE SAME LOAD: {', '.join(unlike)} differ"
    yield ""
    yield f"{'':<26}{'A':>14}{'B':>14}{'change':>10}"
    for name, old, new in _pairs(a["figures"], b["figures"]):
        yield f"{name:<26}{_shown(old):>14}{_shown(new):>14}{_change(old, new):>10}"


def asked(about: Mapping[str, Any]) -> str:
    """The model, and the adapters that were asked for instead."""
    adapters = about.get("adapters") or ()
    names = ", ".join(adapters) if len(adapters) <= _MOST_NAMED else f"{len(adapters)} adapters"
    return f"{about.get('model')} with {names}" if adapters else str(about.get("model"))


def _pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    for name in (*COUNTS, *RATES):
        old, new = a.get(name), b.get(name)
        if old is not None and new is not None:
            yield name, old, new
    for name in LATENCIES:
        for share in SHARES:
            yield f"{name.removesuffix('_s')} {share}, ms", 1e3 * a[name][share], 1e3 * b[name][share]


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _change(old: float, new: float) -> str:
    if old == new:
        return "="
    return f"{new / old - 1:+.1%}" if old else "new"
