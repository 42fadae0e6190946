"""A plan as the tensors of a `Batch`.

Laid out in numpy, with one transfer per array: a step of a thousand requests costs a few milliseconds of Python.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.memory.pages import Fixed, Kind
from chairlift.core.plan import Chunk, StepPlan
from chairlift.models.kv_groups import WHOLE, Fit
from chairlift.runner.ops import Batch, StateWrite


def batch_of(
    plan: StepPlan, block_size: int, previous: Mapping[RequestId, int], device: torch.device,
    kinds: Sequence[Kind] = (), num_groups: Sequence[int] = (), fit: Fit = WHOLE,
) -> Batch:  # fmt: skip
    """`previous`: tokens of the step before, which were not known when the plan was made. `kinds`: of layers with
    tables of their own; `num_groups`: of each of these. `fit`: of layers with a window to pages."""
    chunks = plan.chunks
    counts = np.fromiter((chunk.count for chunk in chunks), np.int64, len(chunks))
    firsts = np.fromiter((chunk.start for chunk in chunks), np.int64, len(chunks))
    starts = np.zeros(len(chunks) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    contexts = firsts + counts
    # Row t of the step is token t - starts[r] of its chunk r.
    owners = np.repeat(np.arange(len(chunks)), counts)
    positions = np.arange(starts[-1]) - starts[owners] + firsts[owners]
    tables = _tables(chunks)
    tokens = np.fromiter(chain.from_iterable(_tokens(chunk, previous) for chunk in chunks), np.int64, starts[-1])
    # The last row of a chunk that samples; with drafts, all rows.
    num_sampled = np.fromiter((bool(chunk.samples) + len(chunk.drafts) for chunk in chunks), np.int64, len(chunks))
    ends = np.cumsum(num_sampled)
    logit_rows = np.repeat(starts[1:] - ends, num_sampled) + np.arange(num_sampled.sum())

    adapters = None
    if plan.adapters:
        slots_of = dict(plan.adapters)
        each = np.fromiter((slots_of.get(chunk.request.attributes.adapter, -1) for chunk in chunks), np.int64)
        adapters = torch.from_numpy(np.repeat(each, counts)).to(device)

    def put(values: NDArray[np.int64], dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(values).to(device, dtype)

    def slots(tables: NDArray[np.int32], size: int = block_size) -> torch.Tensor:
        blocks = tables[owners, positions // size].astype(np.int64)
        return put(blocks * size + positions % size, torch.int64)

    batch = Batch(
        tokens=put(tokens, torch.int64),
        positions=put(positions, torch.int64),
        slots=slots(tables),
        starts=put(starts, torch.int32),
        contexts=put(contexts, torch.int32),
        tables=torch.from_numpy(tables).to(device),
        num_decodes=plan.num_decodes,
        max_context=int(contexts.max()),
        logit_rows=put(logit_rows, torch.int64) if len(logit_rows) < starts[-1] else None,
        adapters=adapters,
    )
    if not kinds:
        return batch
    views: list[Batch] = []
    for place, (kind, count) in enumerate(zip(kinds, num_groups, strict=True)):
        listed = [chunk.tables[1 + place] for chunk in chunks]
        if isinstance(kind, Fixed):
            views += _state_views(batch, plan, place, kind, count, listed)
            continue
        views += [
            replace(batch, slots=slots(own, block_size // fit.pages_a_block), tables=torch.from_numpy(own).to(device))
            for own in _fitted(_tables_of(kind, listed, chunks), fit)
        ]
    return replace(batch, views=tuple(views))


def known_tokens(chunk: Chunk, previous: Mapping[RequestId, int]) -> Sequence[int]:
    """All tokens up to the chunk's end and perhaps more, drafts or the one sampled in the step before included."""
    if chunk.start + chunk.count <= chunk.num_tokens:
        return chunk.tokens
    return [*chunk.tokens[: chunk.num_tokens], *_unknown(chunk, previous)]


def _tokens(chunk: Chunk, previous: Mapping[RequestId, int]) -> Sequence[int]:
    end = chunk.start + chunk.count
    if end > chunk.num_tokens:
        return [*chunk.tokens[chunk.start : chunk.num_tokens], *_unknown(chunk, previous)]
    return chunk.tokens[chunk.start : end]


def _unknown(chunk: Chunk, previous: Mapping[RequestId, int]) -> tuple[int, ...]:
    return chunk.drafts or (previous[chunk.request.id],)


def _tables(chunks: tuple[Chunk, ...]) -> NDArray[np.int32]:
    """[R, W], padded with 0."""
    lengths = np.fromiter((chunk.num_blocks for chunk in chunks), np.int64, len(chunks))
    tables = np.zeros((len(chunks), int(lengths.max())), np.int32)
    is_used = np.arange(tables.shape[1]) < lengths[:, None]
    blocks = chain.from_iterable(chunk.blocks[: chunk.num_blocks] for chunk in chunks)
    tables[is_used] = np.fromiter(blocks, np.int32, int(lengths.sum()))
    return tables


def _tables_of(kind: Kind, listed: Sequence[Sequence[BlockId]], chunks: Sequence[Chunk]) -> NDArray[np.int32]:
    """[pages of a block, R, W]: of the pages that each chunk reads or writes; elsewhere 0."""
    num, size = kind.num_pages, kind.block_size
    width = max(-(-(chunk.start + chunk.count) // size) for chunk in chunks)
    tables = np.zeros((num, len(chunks), width), np.int32)
    for row, (chunk, pages) in enumerate(zip(chunks, listed, strict=True)):
        low, high = kind.num_behind(chunk.start), -(-(chunk.start + chunk.count) // size)
        tables[:, row, low:high] = np.array(pages[low * num : high * num], np.int32).reshape(-1, num).T
    return tables


def _fitted(tables: NDArray[np.int32], fit: Fit) -> NDArray[np.int32]:
    """[groups, R, W], by the pieces of pages that layers have; those of a block's pages side by side."""
    each = tables.reshape(-1, fit.pages_a_block, *tables.shape[1:]).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(each.reshape(*each.shape[:2], -1) * np.int32(fit.layers_a_place))


def _state_views(
    batch: Batch, plan: StepPlan, place: int, kind: Fixed, count: int, listed: Sequence[Sequence[BlockId]]
) -> list[Batch]:
    """Of each of so many groups, whose pages lie one group's after another's, those of rows and of states apart."""
    device, halves = batch.tables.device, np.array(listed, np.int64).reshape(len(listed), 2, -1)
    rows, states = (part.reshape(len(listed), 2, count, -1) for part in np.split(halves, [kind.num_tile_pages], axis=2))
    tables = torch.from_numpy(np.concatenate((rows, states), axis=3)).to(device)
    chunk_of = {chunk.request.id: index for index, chunk in enumerate(plan.chunks)}
    views = []
    for group in range(count):
        writes: dict[int, list[StateWrite]] = {}
        for request, _, position, pages in (each for each in plan.checkpoints if each.place == place):
            own = torch.tensor(pages, device=device).view(count, -1)[group]
            writes.setdefault(chunk_of[request], []).append(StateWrite(position, own))
        tile_pages = kind.num_tile_pages // count
        views.append(replace(batch, tables=tables[:, :, group], state_writes=writes, num_tile_pages=tile_pages))
    return views
