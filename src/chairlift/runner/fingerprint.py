"""A word for the bits of an exact engine: with different ones engines answer with different bits, with the same one
alike, unless they differ in what two small steps do not come by.

It is made from the logits of a prompt and a decode that are always the same, so it changes with the weights, the
kernels, the instructions they use and whatever else a bit depends on; not with the batch, the cache or the load.
"""

from hashlib import blake2b

from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan
from chairlift.runner.hooks import LogitsRecorder, ShowsLogits
from chairlift.runner.start.synthetic_steps import GREEDY, synthetic_step

_LENGTH = 48  # tokens: more than one block and one tile of keys
_APART = 997  # token ids of neighbours: all over the vocabulary
_BYTES = 4


def fingerprint(runner: ShowsLogits, limits: Limits) -> str:
    """Must run before any request, as `warm_up` must. Where no context of 49 tokens fits, it is of a shorter one."""
    length = min(_LENGTH, limits.max_model_len - 1, limits.max_pool_tokens - 1)
    rows = LogitsRecorder({RequestId(-1)})
    runner.on_logits = rows
    for start in range(0, length, limits.max_step_tokens):
        span = start, min(limits.max_step_tokens, length - start)
        _run(runner, synthetic_step([span], limits, 0, GREEDY, _APART))
    _run(runner, synthetic_step([(length, 1)], limits, 1, GREEDY, _APART))
    runner.on_logits = None
    kept = [seen.row.tobytes() for seen in rows.take() if seen.position >= length - 1]
    return blake2b(b"".join(kept), digest_size=_BYTES).hexdigest()


def _run(runner: ShowsLogits, plan: StepPlan) -> None:
    runner.submit(plan)
    runner.collect()
