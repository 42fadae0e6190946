"""A decoder whose rows may each have an adapter.

    batch.adapters is None   ->  the base decoder, as without adapters
    otherwise                ->  the same layers, each matrix wrapped: base product, then what adapters add

Always: rows without an adapter get the base's numbers. Knows slots, not adapters: `HostSlots` puts these there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from chairlift.config.adapters.adapter import ROLES
from chairlift.core.plan import AdapterSlot
from chairlift.runner.adapters.low_rank import HostAdapter, MatrixKey
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.model import Decoder, Model, OnLayer, nothing
from chairlift.runner.ops import Batch, Weight

Group = tuple[int, Tensor | None]  # a slot and its rows; None: all


class HostSlots:
    """The adapters of a step on a CPU: those of the host themselves, and the rows that each has."""

    def __init__(self, store: AdapterStore[HostAdapter], num_slots: int) -> None:
        self._store = store
        self._adapters: list[HostAdapter | None] = [None] * num_slots
        self._groups: dict[int, list[Group]] = {}  # by number of rows

    def load(self, loads: Sequence[AdapterSlot]) -> None:
        for adapter, slot in loads:
            self._adapters[slot] = self._store.get(adapter)

    def begin(self, batch: Batch) -> None:
        """The last layer goes on with the rows whose logits are wanted; as many are the same ones."""
        assert batch.adapters is not None
        self._groups = {len(batch.adapters): _groups(batch.adapters)}
        if batch.logit_rows is not None:
            self._groups[len(batch.logit_rows)] = _groups(batch.adapters[batch.logit_rows])

    def add(self, key: MatrixKey, x: Tensor, out: Tensor) -> None:
        """What the adapters of the rows add to a base product."""
        for slot, rows in self._groups[len(x)]:
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


@dataclass(frozen=True, slots=True)
class AdaptedWeight:
    base: Weight
    key: MatrixKey
    slots: HostSlots

    def linear(self, x: Tensor) -> Tensor:
        out = self.base.linear(x)
        self.slots.add(self.key, x, out)
        return out

    def logits(self, x: Tensor) -> Tensor:
        return self.base.logits(x)

    def rows(self, ids: Tensor) -> Tensor:
        return self.base.rows(ids)


class AdaptedModel:
    """`base`: the decoder, perhaps in a faster form, for steps without adapters."""

    def __init__(self, decoder: Decoder, base: Model[Any], slots: HostSlots) -> None:
        self._base = base
        self._adapted = with_weights(decoder, lambda weight, key: AdaptedWeight(weight, key, slots))
        self.slots = slots
        self.config, self.ops, self.logits = decoder.config, decoder.ops, decoder.logits

    def hidden(self, batch: Batch, kv: Any, on_layer: OnLayer = nothing) -> Tensor:
        if batch.adapters is None:
            return self._base.hidden(batch, kv, on_layer)
        self.slots.begin(batch)
        return self._adapted.hidden(batch, kv, on_layer)


def with_weights(decoder: Decoder, wrap: Callable[[Weight, MatrixKey], Weight]) -> Decoder:
    """The same decoder with each matrix of its layers wrapped: `wrap(weight, key)`."""
    layers = [
        replace(layer, **{role: wrap(getattr(layer, role), (index, role)) for role in ROLES})
        for index, layer in enumerate(decoder.layers)
    ]
    return replace(decoder, layers=tuple(layers))
