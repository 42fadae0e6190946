"""Steps of synthetic requests, for warming up and for measuring.

They write to the first blocks, so they must run before any request, or on a cache that is thrown away.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, islice

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
    longest = max(start + num for start, num in spans)
    tokens = tuple(position * stride % limits.vocab_size for position in range(longest))
    num_all = -(-longest // limits.block_size)
    pages = (BlockId(page % limits.num_blocks) for page in count())
    blocks = list(islice(pages, num_all))
    kinds_of_pages = limits.pages.kinds
    beside = [list(islice(pages, num_all * kind.per_block or kind.num_decoding(num_all))) for kind in kinds_of_pages]
    chunks = []
    for index, (start, num) in enumerate(spans):
        end = start + num
        own = blocks[: -(-end // limits.block_size)]
        params = kinds[index % len(kinds)]
        request = Request(id=RequestId(-1 - index), prompt=tokens[:end], params=params, max_output=1, seed=0)
        chunks.append(Chunk(request, start, num, tokens, end, (own, *beside), len(own), (request,)))
    return StepPlan(0, tuple(chunks), (), sum(num for _, num in spans), num_decodes)


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
