"""Attention in torch whose rows have the same bits in any batch: every token is a query of its own.

A token at position p reads whole tiles of 128 positions, those up to its own tile, whoever else is in the step. So the
shapes that the library sees for it depend on p alone, whether it comes as a decode or in a prompt chunk of any length;
tokens with the same tiles go through it together, as a batch of independent queries.

    position 300, no window:    | 0 .. 127 | 128 .. 255 | 256 .. 300, hidden .. 383 |
"""

from collections.abc import Iterator
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from chairlift.config.model import AttentionSpec
from chairlift.runner.ops import Batch
from chairlift.runner.torch.sdpa import weighted

_TILE = 128
_MAX_GATHERED = 1 << 26  # values of keys that decodes gather at once

Tiles = tuple[int, int]  # the first position that is read, and the first beyond


def exact_attention(q: Tensor, keys: Tensor, values: Tensor, batch: Batch, spec: AttentionSpec) -> Tensor:
    """As `TorchOps.attention`."""
    window = spec.window
    out = torch.empty_like(q)  # [T, heads, head_dim]
    starts, contexts = batch.starts.tolist(), batch.contexts.tolist()
    for tiles, owners in _alike(contexts[: batch.num_decodes], window):
        for some in owners.split(max(1, _MAX_GATHERED // ((tiles[1] - tiles[0]) * keys[0, :, 0].numel()))):
            places = torch.arange(*tiles).minimum(batch.contexts[some, None] - 1)  # [D, L]
            k, v = _gather(keys, places, batch.tables[some]), _gather(values, places, batch.tables[some])
            out[some] = _attend(q[some], k, v, batch.contexts[some] - 1, tiles, spec)
    for r in range(batch.num_decodes, len(contexts)):
        past = contexts[r] - (starts[r + 1] - starts[r])
        for (first, end), positions in _runs(past, contexts[r], window):
            places = torch.arange(first, end).clamp(max=contexts[r] - 1)[None]
            table = batch.tables[r : r + 1]
            rows = slice(starts[r] + positions.start - past, starts[r] + positions.stop - past)
            k, v = _gather(keys, places, table), _gather(values, places, table)
            own = torch.arange(positions.start, positions.stop)
            out[rows] = _attend(q[rows], k, v, own, (first, end), spec)
    return out.flatten(1)


def _tiles_of(position: int, window: int) -> Tiles:
    first = max(0, position - window + 1) if window else 0
    return first // _TILE * _TILE, (position // _TILE + 1) * _TILE


def _alike(contexts: list[int], window: int) -> Iterator[tuple[Tiles, Tensor]]:
    """Decodes by the tiles they read."""
    by_tiles: dict[Tiles, list[int]] = {}
    for index, context in enumerate(contexts):
        by_tiles.setdefault(_tiles_of(context - 1, window), []).append(index)
    for tiles, indices in by_tiles.items():
        yield tiles, torch.tensor(indices)


def _runs(past: int, context: int, window: int) -> Iterator[tuple[Tiles, range]]:
    """Positions of a chunk by the tiles they read."""
    for tiles, run in groupby(range(past, context), lambda position: _tiles_of(position, window)):
        positions = list(run)
        yield tiles, range(positions[0], positions[-1] + 1)


def _gather(cache: Tensor, places: Tensor, tables: Tensor) -> Tensor:
    """What lies at the places [D, L] of requests with these tables. -> [D, kv_heads, L, head_dim]"""
    _, kv_heads, block_size, head_dim = cache.shape
    blocks = tables.gather(1, places // block_size).long()
    heads = torch.arange(kv_heads)[:, None]
    rows = (blocks[:, None] * kv_heads + heads) * block_size + (places % block_size)[:, None]  # [D, kv_heads, L]
    return F.embedding(rows, cache.view(-1, head_dim))


def _attend(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, tiles: Tiles, spec: AttentionSpec
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
    if not spec.cap:
        return weighted(grouped, k, v, seen, spec).flatten(1, 2)
    # Products of a batch may be shared out by its size: one query at a time.
    each = [weighted(grouped[i : i + 1], k[i : i + 1], v[i : i + 1], seen[i : i + 1], spec) for i in range(len(q))]
    return torch.cat(each).flatten(1, 2)
