"""A decoder whose rows may each have an adapter.

    batch.adapters is None   ->  the base decoder, as without adapters
    otherwise                ->  the same layers, each matrix wrapped: base product, then what adapters add

Always: rows without an adapter get the base's numbers. Knows slots, not adapters: `HostSlots` puts these there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from chairlift.core.plan import AdapterSlot
from chairlift.models.tensors import OF_ALL, MatrixKey
from chairlift.runner.adapters.low_rank import HostAdapter
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.model import Decoder, Model, OnLayer, nothing
from chairlift.runner.ops import Batch, Experts, Weight

Wrap = Callable[[Weight, MatrixKey, bool], Weight]  # a weight, which it is, and whether its rows were chosen
Group = tuple[int, Tensor | None]  # a slot and its rows; None: all


class HostSlots:
    """The adapters of a step on a CPU: those of the host themselves, and the rows that each has."""

    def __init__(self, store: AdapterStore[HostAdapter], num_slots: int) -> None:
        self._store = store
        self._adapters: list[HostAdapter | None] = [None] * num_slots
        self._rows: tuple[list[Group], list[Group]] = [], []  # of all rows, and of those whose logits are wanted

    def load(self, loads: Sequence[AdapterSlot]) -> None:
        for adapter, slot in loads:
            self._adapters[slot] = self._store.get(adapter)

    def begin(self, batch: Batch) -> None:
        assert batch.adapters is not None
        everywhere = _groups(batch.adapters)
        chosen = everywhere if batch.logit_rows is None else _groups(batch.adapters[batch.logit_rows])
        self._rows = everywhere, chosen

    def add(self, key: MatrixKey, is_chosen: bool, x: Tensor, out: Tensor) -> None:
        """What the adapters of the rows add to a base product. is_chosen: these are the rows whose logits are
        wanted."""
        for slot, rows in self._rows[is_chosen]:
            adapter = self._adapters[slot]
            assert adapter is not None
            low_rank = adapter.matrices.get(key)
            if low_rank is None:
                continue
            if rows is None:
                low_rank.add(x, out)
            else:
                own = out.index_select(0, rows)
                low_rank.add(x.index_select(0, rows), own)
                out.index_copy_(0, rows, own)


def _groups(slots: Tensor) -> list[Group]:
    found = [slot for slot in torch.unique(slots).tolist() if slot >= 0]
    if len(found) == 1 and bool((slots == found[0]).all()):
        return [(found[0], None)]
    return [(slot, torch.nonzero(slots == slot).flatten()) for slot in found]


class AddsAdapters(Protocol):
    """To the products of a step."""

    def add(self, key: MatrixKey, is_chosen: bool, x: Tensor, out: Tensor) -> None: ...


class Slots(AddsAdapters, Protocol):
    def load(self, loads: Sequence[AdapterSlot]) -> None: ...

    def begin(self, batch: Batch) -> None: ...


@dataclass(frozen=True, slots=True)
class AdaptedWeight:
    base: Weight
    key: MatrixKey
    is_chosen: bool  # its rows are those whose logits are wanted
    slots: AddsAdapters

    def linear(self, x: Tensor) -> Tensor:
        out = self.base.linear(x)
        self.slots.add(self.key, self.is_chosen, x, out)
        return out

    def logits(self, x: Tensor) -> Tensor:
        return self.base.logits(x)

    def rows(self, ids: Tensor) -> Tensor:
        return self.base.rows(ids)


class AdaptedModel:
    """Two forms of a decoder: `with_adapters` for steps that have some in these slots."""

    def __init__(self, base: Model[Any], with_adapters: Model[Any], slots: Slots) -> None:
        self._base = base
        self._adapted = with_adapters
        self.slots = slots
        self.config, self.ops, self.logits = base.config, base.ops, base.logits

    def hidden(self, batch: Batch, kv: Any, on_layer: OnLayer = nothing) -> Tensor:
        if batch.adapters is None:
            return self._base.hidden(batch, kv, on_layer)
        self.slots.begin(batch)
        return self._adapted.hidden(batch, kv, on_layer)


def adapted(decoder: Decoder, slots: AddsAdapters) -> Decoder:
    """The same decoder, with what the adapters in these slots add."""
    return with_weights(decoder, lambda weight, key, is_chosen: AdaptedWeight(weight, key, is_chosen, slots))


def with_weights(decoder: Decoder, wrap: Wrap) -> Decoder:
    """The same decoder with each matrix wrapped that adapters may add to (`matrices_by_key`). After the last mixer,
    only rows whose logits are wanted go on."""
    layers, inputs = [], decoder.token_inputs
    if inputs is not None:
        inputs = replace(inputs, projection=wrap(inputs.projection, (OF_ALL, "token_projection"), False))
    for index, layer in enumerate(decoder.layers):
        is_last = index == len(decoder.layers) - 1
        layers.append(
            replace(
                layer,
                weights={role: wrap(weight, (index, role), False) for role, weight in layer.weights.items()},
                output=wrap(layer.output, (index, "output"), is_last),
                gate_up=layer.gate_up and wrap(layer.gate_up, (index, "gate_up"), is_last),
                down=layer.down and wrap(layer.down, (index, "down"), is_last),
                experts=layer.experts and _with_gate(layer.experts, wrap, index, is_last),
                token=layer.token
                and replace(
                    layer.token,
                    gate=wrap(layer.token.gate, (index, "token_gate"), is_last),
                    output=wrap(layer.token.output, (index, "token_output"), is_last),
                ),
            )
        )
    return replace(decoder, layers=tuple(layers), token_inputs=inputs)


def _with_gate(experts: Experts, wrap: Wrap, index: int, is_last: bool) -> Experts:
    gate = experts.shared_gate
    return experts if gate is None else replace(experts, shared_gate=wrap(gate, (index, "shared_gate"), is_last))
