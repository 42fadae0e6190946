"""Attention in torch whose rows have the same bits in any batch: every token is a query of its own.

A token at position p reads whole tiles of 128 positions up to its own tile. So the shapes that the library sees for it
depend on p alone, in a decode and in a prompt chunk of any length; tokens with the same tiles go through it together,
as a batch of independent queries.

    position 300, no window:    | 0 .. 127 | 128 .. 255 | 256 .. 300, hidden .. 383 |
"""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.ops import Batch
from chairlift.runner.torch.sdpa import MAX_GATHERED, gather, weighted

_TILE = 128

Tiles = tuple[int, int]  # the first position that is read, and the first beyond


class _Queries(NamedTuple):
    """Tokens that read the same tiles: decodes, or neighbours of one chunk."""

    tiles: Tiles
    rows: Tensor | slice  # of the step
    chunks: Tensor | slice  # that they belong to, one each or one for all
    positions: Tensor


def exact_attention(
    q: Tensor, keys: Tensor, values: Tensor, batch: Batch, spec: AttentionSpec, sinks: Tensor | None = None
) -> Tensor:  # fmt: skip
    """As `TorchOps.attention`."""
    out = torch.empty_like(q)  # [T, heads, head_dim]
    max_positions = MAX_GATHERED // keys[0, :, 0].numel()
    for tiles, rows, chunks, own in (*_decodes(batch, spec.window, max_positions), *_prompts(batch, spec.window)):
        tables = batch.tables[chunks]
        positions = torch.arange(*tiles).minimum(batch.contexts[chunks, None] - 1)  # [D or 1, L]
        if spec.window:  # memory behind it may be another's, with NaNs: 0 * NaN is not 0
            positions = positions.maximum(own[: len(tables), None] - spec.window + 1)
        k, v = gather(keys, positions, tables), gather(values, positions, tables)
        out[rows] = _attend(q[rows], k, v, own, tiles, spec, sinks)
    return out.flatten(1)


def _tiles_of(position: int, window: int) -> Tiles:
    first = max(0, position - window + 1) if window else 0
    return first // _TILE * _TILE, (position // _TILE + 1) * _TILE


def _decodes(batch: Batch, window: int, max_positions: int) -> Iterator[_Queries]:
    by_tiles: dict[Tiles, list[int]] = {}
    for index, context in enumerate(batch.contexts[: batch.num_decodes].tolist()):
        by_tiles.setdefault(_tiles_of(context - 1, window), []).append(index)
    for tiles, indices in by_tiles.items():
        for rows in torch.tensor(indices).split(max(1, max_positions // (tiles[1] - tiles[0]))):
            yield _Queries(tiles, rows, rows, batch.contexts[rows] - 1)


def _prompts(batch: Batch, window: int) -> Iterator[_Queries]:
    starts, contexts = batch.starts.tolist(), batch.contexts.tolist()
    for r in range(batch.num_decodes, len(contexts)):
        first = starts[r + 1] - contexts[r]  # the row of position 0, were it in the step
        chunk = range(starts[r] - first, contexts[r])
        for tiles, run in groupby(chunk, lambda position: _tiles_of(position, window)):
            positions = torch.tensor(list(run))
            low = first + int(positions[0])
            yield _Queries(tiles, slice(low, low + len(positions)), slice(r, r + 1), positions)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, tiles: Tiles, spec: AttentionSpec, sinks: Tensor | None
) -> Tensor:  # fmt: skip
    """q [D, heads, head_dim] at these positions, over k and v of D requests or of one. -> [D, heads, head_dim]"""
    at, own = torch.arange(*tiles), positions[:, None]
    seen = at <= own  # [D, L]
    if spec.window:
        seen &= at > own - spec.window
    # The heads that share a key head become its query rows.
    grouped = q.unflatten(1, (k.shape[1], -1))  # [D, kv_heads, group, head_dim]
    k, v = k.expand(len(q), -1, -1, -1), v.expand(len(q), -1, -1, -1)
    seen = seen[:, None, None]
    if not spec.cap and sinks is None:
        return weighted(grouped, k, v, seen, spec).flatten(1, 2)
    # Products of a batch may be shared out by its size: one query at a time.
    sinks = None if sinks is None else sinks.view(k.shape[1], -1, 1)
    one = [slice(i, i + 1) for i in range(len(q))]
    each = [weighted(grouped[i], k[i], v[i], seen[i], spec, sinks) for i in one]
    return torch.cat(each).flatten(1, 2)
