"""A model of transformers as a runner needs one: its layers are the library's, keys and values are in our pages.

    tokens [1, T] packed, positions -> the library's layers -> hidden states -> the library's head -> logits
                                         |
                         attention call: keys and values -> cache; attention of ours over the pages

Always: the library keeps nothing between steps.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import ModelConfig
from chairlift.runner.fallback.describe import STEP
from chairlift.runner.fallback.library import base_name, base_of
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import OnLayer, nothing
from chairlift.runner.ops import Attention, Batch, PagedOps

PAGED = "chairlift"  # the name of our attention in transformers


@dataclass(slots=True)
class _Pass:
    """One pass through the layers, which call their attention in order."""

    batch: Batch
    kv: KvCache
    specs: Sequence[AttentionSpec]
    ops: PagedOps
    on_layer: OnLayer
    num_done: int = 0

    def attend(self, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None) -> Tensor:
        """Of one layer: query [1, heads, T, D], key and value [1, kv_heads, T, D or another] -> [1, T, heads, D]"""
        self.on_layer()
        layer, self.num_done = self.num_done, self.num_done + 1
        spec, (keys, values) = self.specs[layer], self.kv.state[layer]
        q, k, v = (_rows(x, spec.head_dim) for x in (query, key, value))
        q = q.contiguous()
        self.ops.store(k, v, keys, values, self.batch)
        out = self.ops.attention(q, spec, keys, values, self.batch, sinks)
        return out.view(1, *q.shape)[..., : value.shape[-1]]


class TransformersModel:
    def __init__(self, config: ModelConfig, model: Any, ops: PagedOps, dtype: torch.dtype) -> None:
        """model: with its weights; its attention becomes ours."""
        model.set_attn_implementation(PAGED)
        self.config = config
        self.ops = ops
        self.dtype = dtype
        self._specs = [layer.attention for layer in config.layers]
        none = torch.empty(0, device=model.device)
        self.attentions = [Attention(spec, none, None, None, 0.0) for spec in self._specs]
        self._base = base_of(model)
        self._head = _head_of(model)

    def hidden(self, batch: Batch, kv: KvCache, on_layer: OnLayer = nothing) -> Tensor:
        own = _Pass(batch, kv, self._specs, self.ops, on_layer)
        positions = batch.positions.long().clamp(min=0)  # those of padding are below 0
        output = self._base(
            input_ids=batch.tokens[None], position_ids=positions[None], use_cache=False, return_dict=True, **{STEP: own}
        )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden if batch.logit_rows is None else hidden.index_select(0, batch.logit_rows)

    def logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._head(inputs_embeds=hidden[None], use_cache=False).logits[0]
        return logits if logits.dtype is torch.float64 else logits.float()


class _Output(tuple[Tensor]):
    """What layers give, of any family: hidden states, and nothing else that a head may ask for."""

    def __getattr__(self, name: str) -> Tensor | None:
        return self[0] if name == "last_hidden_state" else None


class _Given(torch.nn.Module):
    """In place of a model's layers: gives what it is given."""

    @property
    def decoder(self) -> "_Given":
        return self

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> "_Output":
        return _Output((inputs_embeds,))


def _head_of(model: Any) -> Any:
    """The model without layers: its head, with all that it does to logits."""
    head = copy.copy(model)
    head._modules = {**model._modules, base_name(model): _Given()}
    return head


def _rows(x: Tensor, head_dim: int) -> Tensor:
    """[1, heads, T, D] -> [T, heads, head_dim], dense in the last side, with zeros behind a narrower head."""
    rows = x[0].transpose(0, 1)
    rows = rows if rows.stride(-1) == 1 else rows.contiguous()
    return rows if rows.shape[-1] == head_dim else F.pad(rows, (0, head_dim - rows.shape[-1]))


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    own = options[STEP]
    assert isinstance(own, _Pass)
    sinks = options.get("s_aux")
    return own.attend(query, key, value, None if sinks is None else _wide(sinks)), None


# Without a mask function of that name transformers makes no mask: chunks tell what each token sees.
AttentionInterface.register(PAGED, _attend)
