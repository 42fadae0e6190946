"""Arrival times of a workload's requests: as recorded, all at once, drawn at a rate, or in a closed loop.

Always: arrivals never decrease; the same seed gives the same times. Items are not kept.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from chairlift.lab.workload.item import Item
from chairlift.lab.workload.spec import Spec, parse_spec

Gap = Callable[[random.Random, float], float]  # at a time

_KEYS = {
    "trace": ("scale",), "none": (), "poisson": ("rate",), "gamma": ("rate", "cv"), "constant": ("rate",),
    "ramp": ("from", "to", "over"), "closed": ("concurrency",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arrivals:
    gap: Gap | None = None  # seconds to the next request; None: the recorded times
    scale: float = 1.0  # of the recorded times: 0.5 is twice as fast
    concurrency: int = 0  # 0: an open loop; else the most requests in flight

    def apply(self, items: Iterable[Item], seed: int) -> Iterator[Item]:
        if self.gap is None:
            return _scaled(items, self.scale)
        return _drawn(items, self.gap, random.Random(f"arrivals {seed}"))


def parse_arrivals(text: str, origin: str = "--arrivals") -> Arrivals:
    """`trace[:scale=S]`, `none`, `poisson:rate=R`, `gamma:rate=R,cv=C`, `constant:rate=R`, `ramp:from=R,to=R,over=S` or
    `closed:concurrency=N`."""
    spec = parse_spec(text, origin, tuple(_KEYS))
    spec.expect(_KEYS[spec.name])
    if spec.name == "trace":
        return Arrivals(scale=spec.positive("scale", 1.0))
    if spec.name == "none":
        return Arrivals(scale=0.0)
    if spec.name == "closed":
        return Arrivals(scale=0.0, concurrency=spec.count("concurrency"))
    return Arrivals(_ramp(spec) if spec.name == "ramp" else _steady(spec))


def _steady(spec: Spec) -> Gap:
    rate = spec.positive("rate")
    if spec.name == "constant":
        return lambda rng, now: 1.0 / rate
    if spec.name == "poisson":
        return lambda rng, now: rng.expovariate(rate)
    shape = spec.positive("cv") ** -2.0
    return lambda rng, now: rng.gammavariate(shape, 1.0 / (rate * shape))


def _ramp(spec: Spec) -> Gap:
    """A Poisson process whose rate changes linearly from one to another, then stays."""
    first, last, over = spec.positive("from"), spec.positive("to"), spec.positive("over")

    def gap(rng: random.Random, now: float) -> float:
        # In units of expected requests a Poisson process has rate 1: the next request is `ahead` of them away.
        ahead = rng.expovariate(1.0)
        rate = last + (first - last) * max(0.0, 1.0 - now / over)
        left = max(0.0, over - now)
        on_ramp = left * (rate + last) / 2.0
        if ahead >= on_ramp:
            return left + (ahead - on_ramp) / last
        slope = (last - first) / over  # rate * gap + slope / 2 * gap ** 2 == ahead
        return 2.0 * ahead / (rate + math.sqrt(rate * rate + 2.0 * slope * ahead))

    return gap


def _scaled(items: Iterable[Item], scale: float) -> Iterator[Item]:
    for item in items:
        yield item if scale == 1.0 else replace(item, arrival_s=item.arrival_s * scale)


def _drawn(items: Iterable[Item], gap: Gap, rng: random.Random) -> Iterator[Item]:
    now = 0.0  # the first request comes at once
    for item in items:
        yield replace(item, arrival_s=now)
        now += gap(rng, now)
