"""Runs the shapes of step that requests will bring: kernels are chosen, weights laid out and memory touched on first
use. Must run before any request: it writes to their blocks.
"""

import time
from typing import Protocol, runtime_checkable

from chairlift.core.ids import BlockId
from chairlift.core.limits import Limits
from chairlift.core.plan import BlockCopy, StepPlan
from chairlift.core.ports import Runner
from chairlift.core.step_forecast import StepTimes
from chairlift.runner.start.synthetic_steps import GREEDY, MIXED, run, synthetic_step, with_adapter

_DECODES = (1, 2, 4, 8, 16, 32, 64)
_PROMPTS = (8, 32, 128)
_FEW = (1, 8)  # of either, where the rest can wait
_TIMED = (1, 16, 64, 256, 1024)  # tokens of a prompt
_MOVES = 32  # blocks, about as many as a victim has
_REPEATS = 3


@runtime_checkable
class Preparing(Protocol):
    """A runner that can prepare, between steps, for kinds of step that have not come yet."""

    def prepare(self) -> bool:
        """Does a small part of it; False when nothing is left to do."""


def prepare(runner: Runner) -> bool:
    return isinstance(runner, Preparing) and runner.prepare()


def warm_up(runner: Runner, limits: Limits, has_shapes: bool = True) -> None:
    """`has_shapes`: the kernels do something once for each shape, which the native ones do not."""
    for plan in steps(limits, isinstance(runner, Preparing)) if has_shapes else _steps(limits, _FEW[-1:], _FEW[:1]):
        run(runner, plan)
        if limits.num_adapter_slots and isinstance(runner, Preparing):
            run(runner, with_adapter(plan))


def steps(limits: Limits, can_wait: bool) -> list[StepPlan]:
    """`can_wait`: the runner prepares for most shapes when it is idle."""
    prompts = _FEW if can_wait else _PROMPTS
    return _steps(limits, (*prompts, limits.max_step_tokens), _FEW if can_wait else _DECODES)


def _steps(limits: Limits, prompts: tuple[int, ...], decodes: tuple[int, ...]) -> list[StepPlan]:
    """Prompts of these lengths and decodes of these counts, as far as the limits allow, largest first."""
    lengths = {min(length, _longest(limits)) for length in prompts}
    counts = {min(count, limits.max_running) for count in decodes}
    plans = [synthetic_step([(0, length)], limits, 0) for length in sorted(lengths, reverse=True)]
    for params in (MIXED, GREEDY):  # steps that are all greedy may go another way
        plans += [synthetic_step([(0, 1)] * count, limits, count, params) for count in sorted(counts, reverse=True)]
    return plans


def _longest(limits: Limits) -> int:
    return min(limits.max_step_tokens, limits.max_model_len, limits.max_pool_tokens)


def time_recovery(runner: Runner, limits: Limits, num_host_blocks: int) -> tuple[float, StepTimes]:
    """Seconds to move one block one way, and to compute prompts; after `warm_up`."""
    lengths = sorted({min(length, _longest(limits)) for length in (*_TIMED, limits.max_step_tokens)})
    step_times = tuple((length, _best_s(runner, synthetic_step([(0, length)], limits, 0))) for length in lengths)
    # Every step computes something, so moves are timed as the difference to a step without them.
    plain = synthetic_step([(0, 1)], limits, 1)
    count = min(_MOVES, num_host_blocks, limits.num_blocks)
    moves = tuple(BlockCopy(BlockId(block), BlockId(block)) for block in range(count))
    moved_s = _best_s(runner, plain._replace(swap_outs=moves, swap_ins=moves)) - _best_s(runner, plain)
    return max(moved_s, 0.0) / max(1, 2 * count), step_times


def _best_s(runner: Runner, plan: StepPlan) -> float:
    """The least of several times: other work on the machine only adds."""
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        run(runner, plan)
        times.append(time.perf_counter() - began)
    return min(times)
