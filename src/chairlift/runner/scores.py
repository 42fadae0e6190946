"""How likely tokens were, from the raw logits: for requests that ask for log-probabilities."""

from collections.abc import Sequence

import torch
from torch import Tensor

from chairlift.core.score import TokenScore


def score(logits: Tensor, tokens: Sequence[int], num_top: Sequence[int]) -> list[TokenScore]:
    """Scores tokens[i] in logits[i] of [S, vocab], with its num_top[i] most likely rivals."""
    if not tokens:
        return []
    vocab = logits.shape[-1]
    logprobs = logits.log_softmax(dim=-1)
    chosen = torch.tensor(tokens, device=logits.device)[:, None]
    own_logits = logits.gather(-1, chosen)
    ranks = (logits > own_logits).sum(dim=-1) + 1
    best_logprobs, best = logprobs.topk(min(max(num_top), vocab), dim=-1)
    own = zip(
        tokens, own_logits.flatten().tolist(), logprobs.gather(-1, chosen).flatten().tolist(), ranks.tolist(),
        best.tolist(), best_logprobs.tolist(), num_top, strict=True,
    )  # fmt: skip
    return [
        TokenScore(token, logit, logprob, rank, tuple(zip(ids[:top], values[:top], strict=True)))
        for token, logit, logprob, rank, ids, values, top in own
    ]
