"""Scores of tokens, whatever shares their step: for `--exact`.

Torch adds up a row by the number of rows and by where it begins, and its top-k takes any of equal logits. Here a row is
one program's, and of equals the first by id goes first.
"""

import torch
from torch import Tensor

from chairlift.runner.cuda.products.exact_kernels import log_sum_exp_kernel
from chairlift.runner.sampling.scores import count_above

_TILE = 4096


def measure(logits: Tensor, tokens: Tensor, num_top: int) -> Tensor:
    """As `scores.measure`."""
    num_rows, vocab = logits.shape
    norms = torch.empty(num_rows, 1, dtype=torch.float32, device=logits.device)
    log_sum_exp_kernel[(num_rows,)](logits, norms, vocab, TILE=_TILE, num_warps=8)
    own = logits.gather(-1, tokens[:, None])
    ranks = count_above(logits, own) + 1
    ids = _first_of_largest(logits, min(num_top, vocab))
    values = logits.gather(-1, ids) - norms
    # Ranks and ids are small enough to be exact as floats.
    return torch.cat((own, own - norms, ranks.to(own), values, ids.to(own)), dim=-1)


def _first_of_largest(logits: Tensor, count: int) -> Tensor:
    """Their ids. No two keys are equal, so there is one answer: the logit in front, the id behind."""
    bits = (logits + 0.0).view(torch.int32)  # the two zeros become one
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()  # as integers in the order of the numbers
    last = logits.shape[-1] - 1
    keys = (ordered << 32) | (last - torch.arange(last + 1, device=logits.device))
    return last - (keys.topk(count, dim=-1).values & 0xFFFFFFFF)
