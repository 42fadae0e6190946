"""Steps of synthetic requests, for warming up and for measuring.

They write to the first blocks, so they must run before any request, or on a cache that is thrown away.
"""

from collections.abc import Sequence
from dataclasses import replace

from chairlift.core.attributes import Attributes
from chairlift.core.ids import BlockId, RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import AdapterSlot, Chunk, StepPlan
from chairlift.core.ports import Runner
from chairlift.core.request import Request

GREEDY = (SamplingParams(temperature=0.0),)
_ALL = SamplingParams(top_p=0.9, top_k=50, repetition_penalty=1.1, logit_bias={0: 1.0}, logprobs=1)
MIXED = (*GREEDY, SamplingParams(), _ALL)


def synthetic_step(
    spans: Sequence[tuple[int, int]], limits: Limits, num_decodes: int, kinds: Sequence[SamplingParams] = MIXED,
    stride: int = 1,
) -> StepPlan:  # fmt: skip
    """Each request computes (start, count) tokens and samples one. All write to the same first blocks, repeatedly where
    the pool is shorter than a request. `stride`: between the ids of neighbouring tokens."""
    longest = max(start + count for start, count in spans)
    tokens = tuple(position * stride % limits.vocab_size for position in range(longest))
    num_all, num_groups = -(-longest // limits.block_size), limits.num_window_groups
    pages = [BlockId(page % limits.num_blocks) for page in range(num_all * (1 + num_groups))]
    blocks, window_blocks = pages[:num_all], pages[num_all:]
    chunks = []
    for index, (start, count) in enumerate(spans):
        end = start + count
        own = blocks[: -(-end // limits.block_size)]
        params = kinds[index % len(kinds)]
        request = Request(id=RequestId(-1 - index), prompt=tokens[:end], params=params, max_output=1, seed=0)
        chunks.append(Chunk(request, start, count, tokens, end, own, len(own), (request,)))
    tables = (window_blocks,) * len(chunks) if num_groups else ()
    return StepPlan(0, tuple(chunks), (), sum(count for _, count in spans), num_decodes, window_tables=tables)


def with_adapter(plan: StepPlan) -> StepPlan:
    """The same step with an adapter in the first slot, which is empty and adds nothing."""

    def adapted(request: Request) -> Request:
        return replace(request, attributes=Attributes(adapter=-1))

    chunks = [
        chunk._replace(request=adapted(chunk.request), samples=tuple(map(adapted, chunk.samples)))
        for chunk in plan.chunks
    ]
    return plan._replace(chunks=tuple(chunks), adapters=(AdapterSlot(-1, 0),))


def run(runner: Runner, plan: StepPlan) -> None:
    runner.submit(plan)
    runner.collect()
