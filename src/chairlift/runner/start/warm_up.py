"""Runs steps of the shapes that requests will bring, so that the first request does not pay for what is done once.

Kernels are chosen, weights laid out and memory touched on first use. Must run before any request: it writes into
blocks as if they were its own.
"""

import time
from typing import Protocol, runtime_checkable

from chairlift.core.ids import BlockId
from chairlift.core.limits import Limits
from chairlift.core.plan import BlockCopy, StepPlan
from chairlift.core.ports import Runner
from chairlift.runner.start.synthetic_steps import GREEDY, MIXED, synthetic_step

_DECODES = (1, 2, 4, 8, 16, 32, 64)
_PROMPTS = (8, 32, 128)
_FEW = (1, 8)  # of either, where the rest can wait
_MOVES = 32  # blocks, about as many as a victim has
_REPEATS = 3


@runtime_checkable
class Preparing(Protocol):
    """A runner that can do later, between steps, what the first step of a kind would otherwise wait for."""

    def prepare(self) -> bool:
        """Does a small part of it; False when nothing is left to do."""
        ...


def prepare(runner: Runner) -> bool:
    return isinstance(runner, Preparing) and runner.prepare()


def warm_up(runner: Runner, limits: Limits, has_shapes: bool = True) -> None:
    """`has_shapes`: the kernels do something once for each shape, which the native ones do not."""
    can_wait = isinstance(runner, Preparing)
    for plan in steps(limits, can_wait) if has_shapes else _small_steps(limits):
        runner.submit(plan)
        runner.collect()


def steps(limits: Limits, can_wait: bool) -> list[StepPlan]:
    """`can_wait`: the runner prepares most of what is left when it has nothing else to do."""
    longest = min(limits.max_step_tokens, limits.max_model_len, limits.max_pool_tokens)
    prompts = {min(length, longest) for length in (*(_FEW if can_wait else _PROMPTS), limits.max_step_tokens)}
    decodes = {min(count, limits.max_running) for count in (_FEW if can_wait else _DECODES)}
    plans = [synthetic_step([(0, length)], limits, 0) for length in sorted(prompts, reverse=True)]
    for params in (MIXED, GREEDY):  # steps that are all greedy may go another way
        plans += [synthetic_step([(0, 1)] * count, limits, count, params) for count in sorted(decodes, reverse=True)]
    return plans


def _small_steps(limits: Limits) -> list[StepPlan]:
    """One prompt and one decode by each way that samples may go."""
    length = min(_FEW[-1], limits.max_step_tokens, limits.max_model_len, limits.max_pool_tokens)
    prompt = synthetic_step([(0, length)], limits, 0)
    return [prompt, *(synthetic_step([(0, 1)], limits, 1, params) for params in (MIXED, GREEDY))]


def time_recovery(runner: Runner, limits: Limits, num_host_blocks: int) -> tuple[float, float]:
    """Seconds to move one block one way, and to compute one token of a prompt; after `warm_up`."""
    longest = min(limits.max_step_tokens, limits.max_model_len, limits.max_pool_tokens)
    prompt = synthetic_step([(0, longest)], limits, 0)
    token_s = _best_s(runner, prompt) / longest
    # A step computes something in any case: the moves are what one with them takes longer than one without.
    plain = synthetic_step([(0, 1)], limits, 1)
    count = min(_MOVES, num_host_blocks, limits.num_blocks)
    moves = tuple(BlockCopy(BlockId(block), BlockId(block)) for block in range(count))
    moved_s = _best_s(runner, plain._replace(swap_outs=moves, swap_ins=moves)) - _best_s(runner, plain)
    return max(moved_s, 0.0) / max(1, 2 * count), token_s


def _best_s(runner: Runner, plan: StepPlan) -> float:
    """The least of some times: what else the machine does only ever adds."""
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        runner.submit(plan)
        runner.collect()
        times.append(time.perf_counter() - began)
    return min(times)
