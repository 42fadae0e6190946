"""Log-probabilities and ranks of tokens, from the raw logits.

The prompt tokens that a step predicts, for requests with prompt log-probabilities. Needs no torch.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan
from chairlift.core.score import TokenScore


class PromptTargets(NamedTuple):
    """Tokens of a prompt that rows first, first + 1, ... of a step predict."""

    first: int
    tokens: Sequence[int]
    num_top: int  # most likely tokens of each score


def prompt_targets(plan: StepPlan) -> dict[RequestId, PromptTargets]:
    targets = {}
    chunks = plan.chunks[plan.num_decodes :]
    low = plan.num_tokens - sum(chunk.count for chunk in chunks)
    for chunk in chunks:
        num_top, prompt = chunk.request.params.prompt_logprobs, chunk.request.prompt
        if num_top is not None and chunk.start + 1 < len(prompt):
            tokens = prompt[chunk.start + 1 : chunk.start + chunk.count + 1]
            targets[chunk.request.id] = PromptTargets(low, tokens, num_top)
        low += chunk.count
    return targets


_MAX_COUNTED = 32  # rows
_MAX_NUMBERS = 2**20  # of logits at once, on a processor: each copy of them takes 4 MiB
Measure = Callable[[Tensor, Tensor, int], Tensor]  # as `measure` is, and perhaps exact


def score(logits: Tensor, tokens: Sequence[int], num_top: Sequence[int], by: Measure | None = None) -> list[TokenScore]:
    """Scores tokens[i] in logits[i] of [S, vocab], with the num_top[i] most likely tokens. Rows with the same number go
    together: it may decide which of several equal tokens are among those, and other rows must not."""
    scores: dict[int, TokenScore] = {}
    for most in sorted(set(num_top)):
        rows = [i for i, wanted in enumerate(num_top) if wanted == most]
        chosen = [tokens[i] for i in rows]
        part = logits if len(rows) == len(tokens) else logits[rows]
        measured = (by or measure)(part, torch.tensor(chosen, device=logits.device), most)
        scores |= zip(rows, to_scores(measured, chosen, [most] * len(rows)), strict=True)
    return [scores[i] for i in range(len(tokens))]


def max_rows(logits: Tensor) -> int:
    """Of [S, vocab], that are sampled or scored at once: on a processor few, but one for each thread. Each copy of them
    all would take as much memory as all else of a step there."""
    if logits.device.type != "cpu":
        return max(1, len(logits))
    return max(torch.get_num_threads(), _MAX_NUMBERS // logits.shape[-1])


def measure(logits: Tensor, tokens: Tensor, num_top: int) -> Tensor:
    """The numbers of scores for tokens [S] in logits [S, vocab], on their device: [S, 3 + 2 * top]."""
    rows = max_rows(logits)
    if rows < len(logits):
        pieces = zip(logits.split(rows), tokens.split(rows), strict=True)
        return torch.cat([measure(*piece, num_top) for piece in pieces])
    logprobs = logits.log_softmax(dim=-1)
    own = logits.gather(-1, tokens[:, None])
    ranks = count_above(logits, own) + 1
    values, ids = logprobs.topk(min(num_top, logits.shape[-1]), dim=-1)
    # Ranks and ids are small enough to be exact as floats.
    return torch.cat((own, logprobs.gather(-1, tokens[:, None]), ranks.to(own), values, ids.to(own)), dim=-1)


def count_above(logits: Tensor, own: Tensor) -> Tensor:
    """How many of [S, vocab] are above [S, 1]: [S, 1]; in pieces of numbers, as torch sums booleans as int64."""
    pieces = zip(logits.split(_MAX_COUNTED), own.split(_MAX_COUNTED), strict=True)
    return torch.cat([_ones_above(*piece).sum(dim=-1, keepdim=True) for piece in pieces])


def _ones_above(logits: Tensor, own: Tensor) -> Tensor:
    """1.0 where above, else 0.0: float32 counts exactly to 2^24."""
    return torch.gt(logits, own, out=torch.empty_like(logits, dtype=torch.float32))


def to_scores(measured: Tensor, tokens: Sequence[int], num_top: Sequence[int]) -> list[TokenScore]:
    """The scores of the numbers that `measure` gives."""
    most = (measured.shape[-1] - 3) // 2
    scores = []
    for token, (logit, logprob, rank, *best), top in zip(tokens, measured.tolist(), num_top, strict=True):
        ids = map(int, best[most:])
        scores.append(TokenScore(token, logit, logprob, int(rank), tuple(zip(ids, best[:most], strict=True))[:top]))
    return scores
