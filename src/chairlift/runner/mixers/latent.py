"""Latent attention: of a token the cache holds one row, which all heads share as their key and as their value.

    row     latent, normed | key, rotated                                                 [rank + turned]
    query   of each head: its still part through the keys' matrix | its rotated part      [rank + turned]
    out     of each head: the latent part of its sum of rows through the values' matrix   [value]

So it is attention of many heads over one head of keys and values, whose values are its keys. A long chunk of a prompt
makes keys and values of every head of its context's rows instead: fewer multiplications, in another order.

Always: with exact operations all chunks go the first way, so that a row's bits do not depend on its chunk's length.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.mixers.latent import LatentSpec
from chairlift.runner.mixers.mixer import State
from chairlift.runner.ops import Batch, Norm, Ops, PagedOps, Weight
from chairlift.runner.torch.ops import rotate


@dataclass(frozen=True, slots=True)
class Latent:
    spec: LatentSpec
    rotation: Tensor  # float32 [max_len, turned], as `runner.ops.Attention` has it
    query_norm: Norm | None  # of the queries' latent; None: they have none
    row_norm: Norm  # of the latent
    keys: tuple[Weight, ...]  # of each head [rank, still]
    values: tuple[Weight, ...]  # of each head [value, rank]
    both: Weight | None  # [heads * (still + value), rank], of a head's key, then of its value; None: exact

    def mix(self, ops: Ops, x: Tensor, weights: Mapping[str, Weight], state: State, batch: Batch) -> Tensor:
        """As a `Mixer`. -> [T, heads * value]"""
        (rows,), paged = state, cast(PagedOps, ops)  # [num_blocks, 1, block_size, rank + turned]
        queries = self._begin(ops, x, weights, rows, batch)
        if self.both is None:
            return self._shared(paged, queries, rows, batch)
        parts = []
        for own, part in _apart(batch):
            is_long = not part.num_decodes and own.stop - own.start >= self.spec.expands_from
            parts.append((self._by_head if is_long else self._shared)(paged, queries[own], rows, part))
        return torch.cat(parts)

    def _begin(self, ops: Ops, x: Tensor, weights: Mapping[str, Weight], rows: Tensor, batch: Batch) -> Tensor:
        """Writes these tokens' rows. -> queries [T, heads, still + turned]"""
        spec, inputs = self.spec, weights["inputs"].linear(x)
        q, latent, key = inputs.split([inputs.shape[1] - spec.row_dim, spec.rank, spec.turned_dim], dim=1)
        if self.query_norm is not None:
            q = weights["queries"].linear(ops.norm(q.contiguous(), self.query_norm))
        cos, sin = self.rotation[batch.positions].unsqueeze(1).chunk(2, dim=-1)  # [T, 1, turned / 2]
        latent, key = ops.norm(latent.contiguous(), self.row_norm), _turned(key[:, None], cos, sin)[:, 0]
        blocks, offsets = batch.slots // rows.shape[2], batch.slots % rows.shape[2]
        rows[blocks, 0, offsets] = torch.cat((latent, key), dim=1)
        still, turned = q.unflatten(1, (spec.num_heads, -1)).split([spec.still_dim, spec.turned_dim], dim=2)
        return torch.cat((still, _turned(turned, cos, sin)), dim=2)

    def _shared(self, ops: PagedOps, queries: Tensor, rows: Tensor, batch: Batch) -> Tensor:
        """Over the rows as they are."""
        spec = self.spec
        still, turned = queries.split([spec.still_dim, spec.turned_dim], dim=2)
        queries = torch.cat((_each(self.keys, still), turned), dim=2)
        heads = AttentionSpec(
            num_heads=spec.num_heads, num_kv_heads=1, head_dim=spec.row_dim, scale=spec.scale, rotation=None
        )
        out = ops.attention(queries, heads, rows, rows, batch).unflatten(1, (spec.num_heads, -1))
        return _each(self.values, out[..., : spec.rank]).flatten(1)

    def _by_head(self, ops: PagedOps, queries: Tensor, rows: Tensor, batch: Batch) -> Tensor:
        """Of one chunk, over keys and values of every head: a cache of one block, for this call."""
        assert self.both is not None
        spec, context = self.spec, batch.max_context
        table = batch.tables[0, : -(-context // rows.shape[2])]
        latent, key = rows[table].flatten(0, 2)[:context].split([spec.rank, spec.turned_dim], dim=1)
        both = self.both.linear(latent).unflatten(1, (spec.num_heads, -1))  # [L, heads, still + value]
        keys = torch.cat((both[..., : spec.still_dim], key[:, None].expand(-1, spec.num_heads, -1)), dim=2)
        values = F.pad(both[..., spec.still_dim :], (0, spec.head_dim - spec.value_dim))  # as wide as keys
        heads = AttentionSpec(
            num_heads=spec.num_heads, num_kv_heads=spec.num_heads, head_dim=spec.head_dim, scale=spec.scale,
            rotation=None,
        )  # fmt: skip
        own = replace(batch, tables=torch.zeros_like(batch.tables[:, :1]))
        out = ops.attention(queries, heads, keys.transpose(0, 1)[None], values.transpose(0, 1)[None], own)
        return out.unflatten(1, (spec.num_heads, -1))[..., : spec.value_dim].flatten(1)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs are neighbours in x [T, heads, turned], and half apart in what comes out: of queries and keys alike."""
    return rotate(torch.cat((x[..., ::2], x[..., 1::2]), dim=-1), cos, sin)


def _each(weights: tuple[Weight, ...], x: Tensor) -> Tensor:
    """Each head by its own: x [T, heads, in] -> [T, heads, out]"""
    return torch.stack([weight.linear(own.contiguous()) for weight, own in zip(weights, x.unbind(1), strict=True)], 1)


def _apart(batch: Batch) -> Iterator[tuple[slice, Batch]]:
    """The decodes, then each chunk of a prompt by itself, with their rows."""
    starts, contexts, count = batch.starts.tolist(), batch.contexts.tolist(), batch.num_decodes
    for low, high in ([(0, count)] if count else []) + [(r, r + 1) for r in range(count, len(contexts))]:
        yield slice(starts[low], starts[high]), replace(
            batch, starts=batch.starts[low : high + 1] - starts[low], contexts=batch.contexts[low:high],
            tables=batch.tables[low:high], num_decodes=max(0, count - low), max_context=max(contexts[low:high]),
        )  # fmt: skip
