"""The step shapes that a calibration times: decodes, prompts, and both together, over rows and contexts.

Contexts of decodes in a step are uneven, most short and a few long, as in a run: kernels wait for the longest.
"""

from dataclasses import dataclass
from itertools import count as numbers
from itertools import cycle, islice

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import BlockCopy, Chunk, StepPlan
from chairlift.core.request import Request

_PARAMS = SamplingParams(temperature=0.0, ignore_eos=True)
_LARGE = 1024  # rows
_LONG = (4096, 12288)  # tokens of context
_LONG_ROWS = (256, 512, 1024, 2048, 4096)
_SHARES = (0.25, 3.5, 0.5, 0.75, 1.25, 0.25, 1.0, 0.5)  # of the mean context, in turn


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one synthetic request that a step computes."""

    start: int
    count: int = 1
    has_sample: bool = True  # its last token is reached


StepSpans = tuple[Span, ...]  # decodes (one token after a start) first


def grid(limits: Limits, is_quick: bool = False) -> list[StepSpans]:
    """Shapes that fit the limits, each with blocks of its own for every request."""
    rows, batches = _powers(limits.max_step_tokens), _powers(limits.max_running)
    contexts = (48, 256) if is_quick else (48, 128, 256, 1024)
    if is_quick:
        rows, batches = rows[::2] + rows[-1:], batches[::2] + batches[-1:]
    else:
        # Matrix products work in tiles, so that their cost rises by steps: a few more rows than a full tile.
        rows = _with_more(rows, [count + count // 16 for count in rows if 128 <= count <= _LARGE])
        # Steps of many decodes take most of the time of a run; beyond 64 other kernels multiply them.
        batches = _with_more(batches, [count + count // part for count in batches if count >= 64 for part in (8, 2)])
    steps = [_decodes(batch, context) for batch in batches for context in contexts]
    for count in rows:
        is_large = count >= _LARGE  # slow, and much alike
        steps += [(Span(start, count),) for start in (0, *contexts[3 if is_large else 2 :])]
        if count >= 32:  # the same rows as many short prompts, and as many decodes
            steps.append(_decodes(count // 32, 128) + (Span(0, 31),) * (count // 32))
        mixes = [(32, 128)] if is_large else [(4, 128), (32, 128)]
        if not is_quick:
            mixes.append((64, 512))
        steps += [(*_decodes(batch, mean), Span(0, count - batch)) for batch, mean in mixes if batch <= count // 2]
    if not is_quick:
        steps += _long(rows, batches)
    steps.append((Span(0, rows[-1], has_sample=False),))  # a prompt is cut only where the step is full
    return [step for step in dict.fromkeys(steps) if _fits(step, limits)]


def _long(rows: list[int], batches: list[int]) -> list[StepSpans]:
    """Long contexts, of decodes, of prompts, and of both in one step."""
    steps = [_decodes(batch, mean) for batch in batches[:7] for mean in _LONG]
    for count in rows:
        if count in _LONG_ROWS:
            steps += [(Span(start, count),) for start in _LONG]
            steps += [(*_decodes(batch, 2048), Span(start, count - batch)) for batch, start in ((16, 4096), (64, 0))]
    return steps


def _decodes(count: int, mean: int) -> StepSpans:
    """With contexts of this mean."""
    if count < len(_SHARES):
        return (Span(mean - 1),) * count
    return tuple(Span(int(share * mean) - 1) for _, share in zip(range(count), cycle(_SHARES), strict=False))


def _powers(most: int) -> list[int]:
    """1, 2, 4, ... and the most there may be."""
    return [*(1 << i for i in range((most - 1).bit_length())), most]


def _with_more(powers: list[int], more: list[int]) -> list[int]:
    return sorted({*powers, *(count for count in more if count < powers[-1])})


def _fits(step: StepSpans, limits: Limits) -> bool:
    return (
        len(step) <= limits.max_running
        and sum(span.count for span in step) <= limits.max_step_tokens
        and max(span.start + span.count for span in step) < limits.max_model_len
        and sum(_num_pages(span, limits) for span in step) <= limits.num_blocks
    )


def _num_pages(span: Span, limits: Limits) -> int:
    return -(-(span.start + span.count) // limits.block_size) * limits.pages.per_block


def plan_of(
    step: StepSpans,
    limits: Limits,
    copies: tuple[BlockCopy, ...] = (),
    swap_outs: tuple[BlockCopy, ...] = (),
    swap_ins: tuple[BlockCopy, ...] = (),
) -> StepPlan:
    chunks: list[Chunk] = []
    per_blocks = [1, *(kind.per_block for kind in limits.pages.kinds)]
    pages = map(BlockId, numbers())
    for index, span in enumerate(step):
        end = span.start + span.count
        num_blocks = -(-end // limits.block_size)
        tables = tuple(list(islice(pages, num_blocks * per_block)) for per_block in per_blocks)
        tokens = tuple((7 * index + position) % limits.vocab_size for position in range(end))
        request = Request(id=RequestId(1 + index), prompt=tokens, params=_PARAMS, max_output=1, seed=0)
        samples = (request,) if span.has_sample else ()
        chunks.append(Chunk(request, span.start, span.count, tokens, end, tables, num_blocks, samples))
    num_decodes = sum(span.count == 1 and span.start > 0 for span in step)
    return StepPlan(
        0, tuple(chunks), copies, sum(span.count for span in step), num_decodes, swap_outs=swap_outs, swap_ins=swap_ins
    )  # fmt: skip
