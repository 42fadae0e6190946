"""The memory that serving takes of a GPU beside weights and KV cache, measured.

Runs the largest step that the limits allow, and some captured ones, on a runner with a cache of one block, and takes
the difference in use of the device. Knows nothing else of the device.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan
from chairlift.core.ports import Runner, RunnerFull
from chairlift.runner.start.synthetic_steps import GREEDY, run, synthetic_step

_COSTLY = (SamplingParams(top_p=0.9, top_k=50, repetition_penalty=1.1, logprobs=1),)  # samples that take most memory
_FEW = (1, 2, 4)  # requests of small captured steps: any further one adds as much as each of these
NUM_GRAPHS = 256  # expected in the end, beside the largest


@dataclass(frozen=True, slots=True)
class Footprint:
    activations: int  # bytes
    graphs: int
    num_tokens: int  # of the largest step that fits


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
        release()
    activations = used() - before
    release()  # graphs are measured without spare memory
    bare = used()
    has_graph = _can_run(runner, _decodes(tiny, min(limits.max_running, num_tokens)))
    release()
    largest = used()
    few = [count for count in _FEW if count < min(limits.max_running, num_tokens)]
    has_graph = has_graph and all(_can_run(runner, _decodes(tiny, count)) for count in few)
    release()
    each = (used() - largest) // max(1, len(few))
    return Footprint(activations, (largest - bare + NUM_GRAPHS * each) * has_graph, num_tokens)


def steps(limits: Limits) -> list[StepPlan]:
    """The steps that `measure_footprint` runs where memory is not short."""
    num_tokens = largest_count(limits)
    most = min(limits.max_running, num_tokens)
    counts = [most, *(count for count in _FEW if count < most)]
    return [largest_step(limits, num_tokens), *(_decodes(limits, count) for count in counts)]


def largest_count(limits: Limits) -> int:
    """Tokens of the largest step that the limits allow."""
    return min(limits.max_step_tokens, limits.max_running * limits.max_model_len)


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


def _can_run(runner: Runner, plan: StepPlan) -> bool:
    try:
        run(runner, plan)
    except RunnerFull:
        return False
    return True
