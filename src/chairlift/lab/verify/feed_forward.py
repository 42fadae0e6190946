"""Feed-forwards of the reference: one, or a mixture of experts in which one token at a time looks at every expert.

Written out from definitions, as `dense.py` is.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from chairlift.models.parts import Matrix, Part
from chairlift.models.spec import ExpertsSpec, FeedForwardSpec
from chairlift.models.tensors import ExpertTensors, LayerTensors

Linear = Callable[[Tensor], Tensor]


def linear(matrix: Matrix, read: Callable[[Part], Tensor]) -> Linear:
    weight = torch.cat([read(part) for part in matrix.parts])
    bias = torch.cat([read(part) for part in matrix.bias]) if matrix.bias else torch.zeros_like(weight[:, 0])
    return lambda x: x @ weight.T + bias


def feed_forward_of(
    spec: FeedForwardSpec, tensors: LayerTensors, read: Callable[[Part], Tensor], norms: Mapping[str, Linear]
) -> Callable[[Tensor, Tensor], Tensor]:  # fmt: skip
    """Of x and the residual, [T, E] each: what every token takes, and what the experts that it chooses add. norms: of
    experts, where these have their own."""
    added: list[Callable[[Tensor, Tensor], Tensor]] = []
    if tensors.gate_up is not None and tensors.down is not None:
        gate_up, down = linear(tensors.gate_up, read), linear(tensors.down, read)
        gate = tensors.experts and tensors.experts.shared_gate
        share, after_shared = linear(gate, read) if gate else None, norms.get("after_shared", _same)

        def shared(x: Tensor, _: Tensor) -> Tensor:
            given = down(active(gate_up(x), spec.activation, spec.has_gate))
            return after_shared(given if share is None else given / (1.0 + torch.exp(-share(x))))

        added.append(shared)
    if tensors.experts is not None:
        mixture = _Mixture(spec, tensors.experts, read)
        if norms:
            added.append(lambda _, residual: mixture.apart(residual, norms))
        else:
            added.append(lambda x, _: mixture.through(x, x))
    return lambda x, residual: sum((each(x, residual) for each in added), torch.zeros_like(x))


def _same(x: Tensor) -> Tensor:
    return x


def active(product: Tensor, activation: str, has_gate: bool = True) -> Tensor:
    """[T, 2F] -> [T, F], without a gate [T, F] -> [T, F]"""
    gate, up = product.chunk(2, dim=1) if has_gate else (product, torch.ones_like(product))
    if activation == "silu":
        return gate / (1.0 + torch.exp(-gate)) * up
    if activation == "gelu_tanh":
        return 0.5 * gate * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (gate + 0.044715 * gate**3))) * up
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return gate / (1.0 + torch.exp(-1.702 * gate)) * (up + 1.0)


class _Mixture:
    def __init__(self, spec: FeedForwardSpec, tensors: ExpertTensors, read: Callable[[Part], Tensor]) -> None:
        assert spec.experts is not None
        self._spec, self._rule = spec, spec.experts
        self._router = linear(tensors.router, read)
        self._correction = read(tensors.correction) if tensors.correction else None
        self._factors = read(tensors.factors).tolist() if tensors.factors else [1.0] * self._rule.count
        self._gate_up, self._down = (
            _by_expert(each, self._rule.count, read) for each in (tensors.gate_up, tensors.down)
        )

    def apart(self, residual: Tensor, norms: Mapping[str, Linear]) -> Tensor:
        seen = norms["router"](residual) / math.sqrt(residual.shape[1])
        return norms["after_experts"](self.through(norms["before_experts"](residual), seen))

    def through(self, x: Tensor, seen: Tensor) -> Tensor:
        """[T, E] -> [T, E]; seen: by the router"""
        return torch.cat([self._token(*both) for both in zip(x[:, None], seen[:, None], strict=True)])

    def _token(self, token: Tensor, seen: Tensor) -> Tensor:
        """[1, E] -> [1, E]"""
        (logits,) = self._router(seen).double().tolist()
        total = torch.zeros_like(token)
        for expert, weight in weights_of(logits, self._rule, self._listed()).items():
            inner = active(self._gate_up[expert](token), self._spec.activation)
            total = total + weight * self._factors[expert] * self._down[expert](inner)
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


def _by_expert(matrix: Matrix, count: int, read: Callable[[Part], Tensor]) -> list[Linear]:
    parts = [_sorted(read(part), part) for part in matrix.parts]
    weights = _stacked(parts, count, 2)
    biases = [torch.zeros(())] * count
    if matrix.bias:
        biases = _stacked([_sorted(read(part), part) for part in matrix.bias], count, 1)
        weights = [weight.to(biases[0]) for weight in weights]
    return [partial(_product, weight, bias) for weight, bias in zip(weights, biases, strict=True)]


def _sorted(stored: Tensor, part: Part) -> Tensor:
    """[experts, rows, ...], rows of the gate first; parts of single experts stay as they are."""
    tensor = stored.transpose(1, 2) if part.is_transposed else stored
    if not part.is_alternating:
        return tensor
    order = sorted(range(tensor.shape[1]), key=lambda row: row % 2)
    return tensor[:, order]


def _product(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    return x @ weight.T + bias


def _stacked(parts: list[Tensor], count: int, rank: int) -> list[Tensor]:
    """Of parts that are one expert's (of this rank), those of an expert side by side, or hold rows of every one."""
    if parts[0].dim() == rank:
        each = len(parts) // count
        return [torch.cat(parts[each * expert : each * (expert + 1)]) for expert in range(count)]
    return [torch.cat([part[expert] for part in parts]) for expert in range(count)]
