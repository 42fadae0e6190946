"""Capacity: the highest rate of requests at which the targets are met.

Found by bisection in the simulator. Recorded arrivals are scaled; workloads without any (all at once, or a closed loop)
get Poisson arrivals. Never above the rate when all come at once: a faster stream only builds a queue.
"""

from dataclasses import replace

from chairlift.core.errors import InvalidConfig
from chairlift.lab.tune.evaluate import Evaluator
from chairlift.lab.tune.knobs import Choice
from chairlift.lab.workload.arrivals import parse_arrivals

_PRECISION = 0.02
_NUM_ALONE = 200  # requests that are run one by one
_CERTAIN = 1.1  # times a limit, as these are not all
_LOWEST = 1 / 64  # of the rate when all come at once; less counts as none


def capacity(evaluator: Evaluator, choice: Choice) -> float:
    """Requests a second; 0 if hardly any rate meets the targets."""
    work = evaluator.work
    at_once = Evaluator(replace(work, arrivals="none")).evaluate(choice).report
    high = 0.0 if at_once is None else at_once.requests_per_s

    def is_met(rate: float) -> bool:
        arrivals = arrivals_at(work.arrivals, rate, len(work.items), work.items[-1].arrival_s)
        return Evaluator(replace(work, arrivals=arrivals)).evaluate(choice).point.latency <= 1.0

    if high == 0.0 or not is_met(low := _LOWEST * high):
        return 0.0
    if is_met(high):
        return high
    while high / low > 1.0 + _PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if is_met(middle) else (low, middle)
    return low


def arrivals_at(arrivals: str, rate: float, num_requests: int, last_arrival_s: float) -> str:
    """The same arrivals at another rate."""
    name = arrivals.partition(":")[0]
    if name in ("poisson", "constant"):
        return f"{name}:rate={rate:.9g}"
    if name == "gamma":
        cv = next(part for part in arrivals.partition(":")[2].split(",") if part.startswith("cv="))
        return f"gamma:rate={rate:.9g},{cv}"
    if name == "trace" and last_arrival_s > 0:
        return f"trace:scale={(num_requests - 1) / (last_arrival_s * rate):.9g}"
    return f"poisson:rate={rate:.9g}"


def check_possible(evaluator: Evaluator, choice: Choice) -> None:
    """Refuses targets that requests miss even when they run one by one."""
    work = evaluator.work
    assert work.targets is not None
    some = work.items[:: 1 + len(work.items) // _NUM_ALONE]
    alone = Evaluator(replace(work, items=some, arrivals="closed:concurrency=1")).evaluate(choice).report
    if alone is None:
        return
    for target in work.targets.each:
        if target.used(alone) > _CERTAIN:
            raise InvalidConfig(
                f"--slo {target}: cannot be met: requests that have the machine to themselves need "
                f"{1e3 * target.value_s(alone):.4g} ms"
            )


def last_arrival_s(evaluator: Evaluator) -> float:
    """Of an open loop; 0 of a closed one."""
    arrivals, work = parse_arrivals(evaluator.work.arrivals), evaluator.work
    *_, last = arrivals.apply(work.items, work.seed)
    return 0.0 if arrivals.concurrency else last.arrival_s
