"""A word for the bits of an exact engine: where two say the same one, they answer alike to the last bit.

It is made from the logits of two steps that are always the same, so it changes with the weights, the kernels, the
instructions they use and whatever else a bit depends on; not with the batch, the cache or the load.
"""

from hashlib import blake2b

from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.runner.made_up import GREEDY, made_up_step
from chairlift.runner.watch import SeenRows, Watched

_LENGTH = 48  # tokens: more than one block and one tile of keys
_BYTES = 4


def fingerprint(runner: Watched, limits: Limits) -> str:
    """Must run before any request, as `warm_up` must."""
    prompt = min(_LENGTH, limits.max_step_tokens, limits.max_model_len - 1, limits.max_pool_tokens - 1)
    rows = SeenRows({RequestId(-1)})
    runner.logits_seen = rows
    for span, num_decodes in (((0, prompt), 0), ((prompt, 1), 1)):
        runner.submit(made_up_step([span], limits, num_decodes, GREEDY))
        runner.collect()
    runner.logits_seen = None
    return blake2b(b"".join(seen.row.tobytes() for seen in rows.take()), digest_size=_BYTES).hexdigest()
