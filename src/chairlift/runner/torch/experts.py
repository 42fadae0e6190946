"""Mixtures of experts in plain torch: which experts each row chooses, and the sum of what they give.

Always: of equal scores the first expert's goes first; a row's weights and sum are taken in the order of its choices.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from chairlift.models.spec import ExpertsSpec
from chairlift.runner.ops import EachWeight, Experts, Weight
from chairlift.runner.row_exact import sigmoid

_TINY = 1e-20  # keeps a sum of weights from being 0
Gated = Callable[[Weight, Tensor, str], Tensor]  # as `Ops.gated`


def route(
    logits: Tensor, spec: ExpertsSpec, correction: Tensor | None, factors: Tensor | None = None
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """logits [T, X] -> experts int64 [T, chosen], best first, and their weights [T, chosen]"""
    scores = logits
    if spec.scores == "softmax":
        scores = logits.softmax(dim=-1)
    elif spec.scores == "sigmoid":
        scores = sigmoid(logits)
    ranked = scores if correction is None else scores + correction.to(scores.dtype)
    if spec.num_groups > 1:
        ranked = _in_best_groups(ranked, spec)
    ids = _first_of_largest(ranked, spec.num_chosen)
    weights = scores.gather(1, ids)
    if spec.scores == "chosen":
        weights = weights.softmax(dim=-1)
    if spec.is_normalised:
        weights = weights / (_sum(weights) + _TINY)
    return ids, weights * (spec.factor if factors is None else spec.factor * factors[ids])


def _in_best_groups(ranked: Tensor, spec: ExpertsSpec) -> Tensor:
    """-inf outside of the groups whose two best add up to most."""
    grouped = ranked.unflatten(1, (spec.num_groups, -1))  # [T, groups, X / groups]
    best = _first_of_largest(grouped.topk(2, dim=-1).values.sum(dim=-1), spec.num_chosen_groups)
    is_best = torch.zeros(grouped.shape[:2], dtype=torch.bool, device=ranked.device).scatter_(1, best, True)
    return grouped.masked_fill(~is_best[..., None], -torch.inf).flatten(1)


def _first_of_largest(scores: Tensor, count: int) -> Tensor:
    return scores.sort(dim=-1, descending=True, stable=True).indices[:, :count]


def _sum(weights: Tensor) -> Tensor:
    """Of each row, in order: torch's own sum may depend on the number of rows. -> [T, 1]"""
    total = weights[:, :1]
    for column in weights.split(1, dim=1)[1:]:
        total = total + column
    return total


def mix(x: Tensor, experts: Experts, ids: Tensor, weights: Tensor, shared: Tensor | None, gated: Gated) -> Tensor:
    """As `Ops.experts`, of rows that have chosen; each expert's matrices are multiplied by its own rows alone."""
    gate_up, down, spec = experts.gate_up, experts.down, experts.spec
    assert isinstance(gate_up, EachWeight) and isinstance(down, EachWeight)
    parts = x.new_empty(*ids.shape, x.shape[1])  # [T, chosen, E]
    for expert in ids.unique().tolist():
        rows, choices = (ids == expert).nonzero(as_tuple=True)
        parts[rows, choices] = down.weights[expert].linear(gated(gate_up.weights[expert], x[rows], spec.activation))
    return combine(parts, weights, shared)


def combine(parts: Tensor, weights: Tensor, shared: Tensor | None) -> Tensor:
    """shared + the sum of weights [T, chosen] * parts [T, chosen, E], in order and in float32 at least. -> [T, E]"""
    wide = torch.promote_types(parts.dtype, torch.float32)
    total = torch.zeros_like(parts[:, 0], dtype=wide) if shared is None else shared.to(wide)
    for choice in range(parts.shape[1]):
        total = total + weights[:, choice, None].to(wide) * parts[:, choice]
    return total.to(parts.dtype)
