"""The fingerprint of an exact engine: engines with different ones give different logits for the same tokens.

A hash of the logits of a fixed prompt and decode: it changes with the weights, the kernels and the instructions they
use, not with the batch, the cache or the load. Differences that those two steps do not meet leave it unchanged.
"""

from hashlib import blake2b

from chairlift.core.limits import Limits
from chairlift.runner.hooks import LogitsRecorder, ShowsLogits
from chairlift.runner.start.synthetic_steps import GREEDY, run, synthetic_step

_LENGTH = 48  # tokens: more than one block and one tile of keys
_STRIDE = 997  # between neighbouring token ids: all over the vocabulary
_BYTES = 4


def fingerprint(runner: ShowsLogits, limits: Limits, num_ranks: int = 1) -> str:
    """Must run before any request, as `warm_up` must. A context of less than 49 tokens is used whole. Ranks add up in
    an order of their own, so their number counts too, should it not show in these logits."""
    length = min(_LENGTH, limits.max_model_len - 1, limits.max_pool_tokens - 1)
    rows = LogitsRecorder(lambda request, _: request == -1)
    runner.on_logits = rows
    for start in range(0, length, limits.max_step_tokens):
        span = start, min(limits.max_step_tokens, length - start)
        run(runner, synthetic_step([span], limits, 0, GREEDY, _STRIDE))
    run(runner, synthetic_step([(length, 1)], limits, 1, GREEDY, _STRIDE))
    runner.on_logits = None
    kept = [seen.row.tobytes() for seen in rows.take() if seen.position >= length - 1]
    ranks = b"" if num_ranks == 1 else b"%d ranks" % num_ranks
    return blake2b(b"".join(kept) + ranks, digest_size=_BYTES).hexdigest()
