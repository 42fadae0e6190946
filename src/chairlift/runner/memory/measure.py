"""The memory that serving takes of a GPU beside weights and KV cache, measured.

Runs the largest step that the limits allow, and some captured ones, on a runner with a cache of one block, and takes
the difference in use of the device. The first captured step brings the memory that all of them share. Knows nothing
else of the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan
from chairlift.core.ports import Runner, RunnerFull
from chairlift.runner.cuda.step.graph_key import max_graphs
from chairlift.runner.memory.torch_memory import PIECE
from chairlift.runner.start.synthetic_steps import GREEDY, run, synthetic_step, with_adapter

_COSTLY = (SamplingParams(top_p=0.9, top_k=50, repetition_penalty=1.1, logprobs=1),)  # samples that take most memory
# Small captured steps of different keys: any further one adds as much as one of these. The device gives memory in
# pieces, so there are several.
_FEW = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80)  # decodes
_PROMPTS = (190, 250, 270, 310, 370, 440, 500, 560, 630, 760)  # tokens beside a decode
_TIMES = 2  # that a step comes until it is captured
_GRAPHS_PART = 10  # of the room: a tenth


@dataclass(frozen=True, slots=True)
class Footprint:
    activations: int  # bytes
    graphs: int
    num_tokens: int  # of the largest step that fits
    num_graphs: int  # captured steps that fit


def measure_footprint(
    make: Callable[[Limits], Runner], limits: Limits, room: int, used: Callable[[], int], release: Callable[[], None]
) -> Footprint:
    """`used`: bytes of the device in use; `release` returns what is held but not needed. A step that takes more than
    half of the room is too large."""
    tiny = replace(limits, num_blocks=1)
    before = used()
    runner = make(tiny)
    num_tokens = largest_count(limits)
    while not _can_run(runner, largest_step(tiny, num_tokens)) or (num_tokens > 1 and used() - before > room // 2):
        if num_tokens == 1:
            raise RunnerFull("not even a step of one token fits")
        num_tokens //= 2
        del runner
        release()
        runner = make(with_step(tiny, num_tokens))
    activations = used() - before
    release()  # graphs are measured without spare memory
    bare = used()
    most, first, *others = _captured(tiny, num_tokens)
    has_graph = _can_capture(runner, [most, first])
    release()
    shared = used() - bare
    has_graph = has_graph and _can_capture(runner, others)
    release()
    grown = used() - bare - shared
    each = graph_price(grown, len(others))
    num_graphs = num_fitting(room, each, limits) * has_graph
    return Footprint(activations, shared * has_graph + num_graphs * each, num_tokens, num_graphs)


def take_memory(runner: Runner, limits: Limits) -> None:
    """Before any other step: torch cuts tensors from pieces of memory and never joins two, so the steps to come fit in
    what was measured only if the largest was first."""
    _can_run(runner, largest_step(replace(limits, num_blocks=1), largest_count(limits)))


def graph_price(grown: int, num_steps: int) -> int:
    """Bytes of one more captured step where so many took `grown`, in pieces of which the last may be nearly empty."""
    return (grown + PIECE * (grown > 0)) // max(1, num_steps)


def num_priced(limits: Limits) -> int:
    """Captured steps that `measure_footprint` finds the price by where memory is not short."""
    _, counts = _small_steps(limits, largest_count(limits))
    return max(1, len(counts) - 1)


def num_fitting(room: int, graph_bytes: int, limits: Limits) -> int:
    """Captured steps that take no more than their part of the room."""
    return min(max_graphs(limits), max(0, room) // _GRAPHS_PART // max(1, graph_bytes))


def steps(limits: Limits) -> list[StepPlan]:
    """The steps that `measure_footprint` runs where memory is not short."""
    num_tokens = largest_count(limits)
    return [largest_step(limits, num_tokens), *_captured(limits, num_tokens)]


def _captured(limits: Limits, num_tokens: int) -> list[StepPlan]:
    """The most decodes, then small steps. Where there may be adapters, with one: such steps take most."""
    last = [(limits.max_model_len - 1, 1)] * (limits.max_running > 1)
    has_prompts, counts = _small_steps(limits, num_tokens)
    small = [
        synthetic_step([*last, (0, count)], limits, len(last), GREEDY) if has_prompts else _decodes(limits, count)
        for count in counts
    ]
    most = _decodes(limits, min(limits.max_running, num_tokens))
    return [most, *(map(with_adapter, small) if limits.num_adapter_slots else small)]


def _small_steps(limits: Limits, num_tokens: int) -> tuple[bool, list[int]]:
    """Whether they have prompts, and the tokens of the prompt or the decodes of each; few decodes where the limits
    allow no prompts."""
    most = min(limits.max_running, num_tokens)
    prompts = [count for count in _PROMPTS if count < min(num_tokens, limits.max_model_len)]
    return (True, prompts) if len(prompts) > 1 else (False, [count for count in _FEW if count < most] or [most])


def largest_count(limits: Limits) -> int:
    """Tokens of the largest step that the limits allow."""
    return min(limits.max_step_tokens, limits.max_running * limits.max_model_len)


def with_step(limits: Limits, num_tokens: int) -> Limits:
    """With steps of so many tokens, but at least one for each running request."""
    num_tokens = max(num_tokens, limits.max_running)
    return limits if num_tokens >= largest_count(limits) else replace(limits, max_step_tokens=num_tokens)


def largest_step(limits: Limits, num_tokens: int) -> StepPlan:
    """As many decodes as may share a step, the rest of its tokens in prompts; these and one decode end at the end of
    the context."""
    longest = limits.max_model_len
    num_prompts = -(-num_tokens // longest)
    num_decodes = max(0, min(limits.max_running, num_tokens) - num_prompts)
    each, more = divmod(num_tokens - num_decodes, num_prompts)
    counts = [each + (i < more) for i in range(num_prompts)]
    decodes = [(0, 1)] * (num_decodes - 1) + [(longest - 1, 1)] * (num_decodes > 0)
    spans = decodes + [(longest - count, count) for count in counts]
    return synthetic_step(spans, limits, num_decodes, _COSTLY)


def _decodes(limits: Limits, count: int) -> StepPlan:
    """One of them at the end of the context."""
    return synthetic_step([(0, 1)] * (count - 1) + [(limits.max_model_len - 1, 1)], limits, count, GREEDY)


def _can_capture(runner: Runner, plans: Sequence[StepPlan]) -> bool:
    return all(_can_run(runner, plan) for plan in plans for _ in range(_TIMES))


def _can_run(runner: Runner, plan: StepPlan) -> bool:
    try:
        run(runner, plan)
    except RunnerFull:
        return False
    return True
