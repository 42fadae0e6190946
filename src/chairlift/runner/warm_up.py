"""Runs steps of the shapes that requests will bring, so that the first request does not pay for what is done once.

Kernels are chosen, weights laid out and memory touched on first use. Must run before any request: it writes into
blocks as if they were its own.
"""

import time
from dataclasses import replace

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import BlockCopy, Chunk, StepPlan
from chairlift.core.ports import Runner
from chairlift.core.request import Request

_DECODES = (1, 2, 4, 8, 16, 32, 64)
_PROMPTS = (8, 32, 128)
_MOVES = 32  # blocks, about as many as a victim has
_REPEATS = 3
_GREEDY = (SamplingParams(temperature=0.0),)
_MIXED = (*_GREEDY, SamplingParams(), SamplingParams(top_p=0.9, top_k=50, logprobs=1))


def warm_up(runner: Runner, limits: Limits) -> None:
    longest = min(limits.max_step_tokens, limits.max_model_len, limits.max_pool_tokens)
    prompts = {min(length, longest) for length in (*_PROMPTS, limits.max_step_tokens)}
    decodes = {min(count, limits.max_running) for count in _DECODES}
    plans = [_plan([(0, length)], limits, 0) for length in sorted(prompts, reverse=True)]
    for params in (_MIXED, _GREEDY):  # steps that are all greedy may go another way
        plans += [_plan([(0, 1)] * count, limits, count, params) for count in sorted(decodes, reverse=True)]
    for plan in plans:
        runner.submit(plan)
        runner.collect()


def time_recovery(runner: Runner, limits: Limits, num_host_blocks: int) -> tuple[float, float]:
    """Seconds to move one block one way, and to compute one token of a prompt; after `warm_up`."""
    longest = min(limits.max_step_tokens, limits.max_model_len, limits.max_pool_tokens)
    prompt = _plan([(0, longest)], limits, 0)
    token_s = _best_s(runner, prompt) / longest
    # A step computes something in any case: the moves are what one with them takes longer than one without.
    plain = _plan([(0, 1)], limits, 1)
    count = min(_MOVES, num_host_blocks, limits.num_blocks)
    moves = tuple(BlockCopy(BlockId(block), BlockId(block)) for block in range(count))
    moved_s = _best_s(runner, replace(plain, swap_outs=moves, swap_ins=moves)) - _best_s(runner, plain)
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


def _plan(
    spans: list[tuple[int, int]], limits: Limits, num_decodes: int, kinds: tuple[SamplingParams, ...] = _MIXED
) -> StepPlan:
    """A step of made-up requests, each computing (start, count) tokens; they all write to the same first blocks."""
    chunks = []
    for index, (start, count) in enumerate(spans):
        end = start + count
        blocks = [BlockId(block) for block in range(-(-end // limits.block_size))]
        params = kinds[index % len(kinds)]
        tokens = tuple(position % limits.vocab_size for position in range(end))
        request = Request(id=RequestId(-1 - index), prompt=tokens, params=params, max_output=1, seed=0)
        chunks.append(Chunk(request, start, count, tokens, end, blocks, len(blocks), (request,)))
    return StepPlan(0, tuple(chunks), (), sum(count for _, count in spans), num_decodes)
