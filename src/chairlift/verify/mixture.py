"""Feed-forwards of the reference: one, or a mixture of experts in which one token at a time looks at every expert.

Written out from definitions, as `dense.py` is.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from chairlift.config.model import ExpertsSpec, FeedForwardSpec
from chairlift.config.tensors import ExpertTensors, Part


def fed_forward(
    x: Tensor, gate_up: Tensor, down: Tensor, activation: str, biases: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """x [T, E], gate_up [2F, E], down [E, F], their biases -> [T, E]"""
    product = x @ gate_up.T if biases is None else x @ gate_up.T + biases[0]
    gate, up = product.chunk(2, dim=1)
    if activation == "silu":
        active = gate / (1.0 + torch.exp(-gate)) * up
    elif activation == "gelu_tanh":
        active = 0.5 * gate * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (gate + 0.044715 * gate**3))) * up
    else:
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        active = gate / (1.0 + torch.exp(-1.702 * gate)) * (up + 1.0)
    return active @ down.T if biases is None else active @ down.T + biases[1]


class Mixture:
    def __init__(self, spec: FeedForwardSpec, tensors: ExpertTensors, read: Callable[[Part], Tensor]) -> None:
        assert spec.experts is not None
        self._spec, self._rule = spec, spec.experts
        self._router = read(tensors.router.parts[0])
        self._bias = read(tensors.router.bias[0]) if tensors.router.bias else None
        self._correction = read(tensors.correction) if tensors.correction else None
        count = self._rule.count
        self._gate_up, self._down = (
            _by_expert([read(part) for part in matrix.parts], count, 2) for matrix in (tensors.gate_up, tensors.down)
        )
        self._biases: list[tuple[Tensor, Tensor] | None] = [None] * count
        if tensors.gate_up.bias:
            both = (
                _by_expert([read(part) for part in bias], count, 1)
                for bias in (tensors.gate_up.bias, tensors.down.bias)
            )
            self._biases = list(zip(*both, strict=True))

    def through(self, x: Tensor) -> Tensor:
        """[T, E] -> [T, E]"""
        return torch.stack([self._token(token) for token in x])

    def _token(self, token: Tensor) -> Tensor:
        logits = self._router @ token if self._bias is None else self._router @ token + self._bias
        total = torch.zeros_like(token)
        for expert, weight in weights_of(logits.double().tolist(), self._rule, self._listed()).items():
            y = fed_forward(
                token[None], self._gate_up[expert], self._down[expert], self._spec.activation, self._biases[expert]
            )
            total = total + weight * y[0]
        return total

    def _listed(self) -> list[float]:
        return [0.0] * self._rule.count if self._correction is None else self._correction.double().tolist()


def weights_of(logits: list[float], rule: ExpertsSpec, correction: list[float]) -> dict[int, float]:
    """The weight of each expert that a token with these logits chooses."""
    experts, top = range(len(logits)), max(logits)
    scores = logits
    if rule.scores == "softmax":
        total = sum(math.exp(logit - top) for logit in logits)
        scores = [math.exp(logit - top) / total for logit in logits]
    elif rule.scores == "sigmoid":
        scores = [1.0 / (1.0 + math.exp(-logit)) for logit in logits]
    ranks = [score + more for score, more in zip(scores, correction, strict=True)]
    size = len(logits) // rule.num_groups
    groups = [ranks[first : first + size] for first in range(0, len(ranks), size)]
    best = sorted(range(rule.num_groups), key=lambda group: -sum(sorted(groups[group])[-2:]))[: rule.num_chosen_groups]
    allowed = [expert for expert in experts if expert // size in best]
    chosen = sorted(allowed, key=lambda expert: -ranks[expert])[: rule.num_chosen]
    weights = {expert: scores[expert] for expert in chosen}
    if rule.scores == "chosen":
        weights = {expert: math.exp(logits[expert] - top) for expert in chosen}
    if rule.is_normalised or rule.scores == "chosen":
        total = sum(weights.values())
        weights = {expert: weight / total for expert, weight in weights.items()}
    return {expert: weight * rule.factor for expert, weight in weights.items()}


def _by_expert(parts: list[Tensor], count: int, rank: int) -> list[Tensor]:
    """Of parts that are one expert's (of this rank), those of an expert side by side, or hold rows of every one."""
    if parts[0].dim() == rank:
        each = len(parts) // count
        return [torch.cat(parts[each * expert : each * (expert + 1)]) for expert in range(count)]
    return [torch.cat([part[expert] for part in parts]) for expert in range(count)]
