"""Lays a plan out as columns, with the table updates, new requests and tiles that it takes; plain numpy."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from chairlift.core.plan import Chunk, StepPlan
from chairlift.runner.cuda.step.columns import NUM_COLUMNS, Columns, Words
from chairlift.runner.cuda.step.request_rows import Arrivals, RequestRows, Updates

# Where a prompt chunk has more pairs of queries and keys, it and all that follow the decodes are computed by tiles of
# queries, not row by row.
MAX_ROW_PAIRS = 64 * 256
QUERIES = 64  # of a tile, which is one program's
_NOTHING = np.zeros(0, np.int32)


class Notes(NamedTuple):
    """What is found beside the columns."""

    updates: Updates
    arrivals: Arrivals
    tiles: list[tuple[int, int, int, int]]


def lay_out(plan: StepPlan, rows: RequestRows, block_size: int, notes: Notes) -> tuple[Columns, Words]:
    """(the columns, tokens of each chunk)"""
    # Decodes are the most of most steps: they are laid out by columns, the rest by chunks.
    columns = _decodes(plan.chunks[: plan.num_decodes], rows, block_size, notes)
    num_done = len(columns[0])
    if num_done < len(plan.chunks):
        others = _chunks(plan.chunks[num_done:], rows, block_size, num_done, notes)
        columns = [np.concatenate(both) for both in zip(columns, others, strict=True)]
    *columns, counts = columns
    short = columns[2].copy() if notes.tiles else columns[2]
    for first, count, _, _ in notes.tiles:
        short[first : first + count] = -1
    return Columns._make((*columns, short)), counts


def view_slots(columns: Columns, rows: RequestRows, block_size: int) -> Words:
    """Where keys and values go in other groups of layers: the column of each, one after the other."""
    blocks = rows.view_tables[:, columns.table_rows, columns.positions // block_size]  # [groups, T]
    return (blocks * block_size + columns.positions % block_size).ravel()


def _decodes(chunks: Sequence[Chunk], rows: RequestRows, block_size: int, notes: Notes) -> list[Words]:
    """The columns but the last, and the counts, of chunks of one token; empty where some have several samples."""
    num = len(chunks)
    if not num:
        return [_NOTHING] * NUM_COLUMNS
    requests, starts, _, texts, num_known, tables, num_blocks, samples, _ = zip(*chunks, strict=True)
    if sum(map(len, samples)) != num:
        return [_NOTHING] * NUM_COLUMNS
    indices = rows.of_all(requests, tables, num_blocks, starts, notes.arrivals, notes.updates)
    positions = np.fromiter(starts, np.int32, num)
    tokens = np.zeros(num, np.int32)
    is_known = positions < np.fromiter(num_known, np.int32, num)
    for i in np.flatnonzero(is_known).tolist():
        tokens[i] = texts[i][starts[i]]
    slots = rows.tables[indices, positions // block_size] * block_size + positions % block_size
    refs = np.where(is_known, np.int32(-1), indices)
    return [tokens, refs, positions, slots, indices, np.arange(num, dtype=np.int32), indices, np.ones(num, np.int32)]


def _num_short(chunks: Sequence[Chunk]) -> int:
    """Of the chunks those that are computed row by row: all, or the single tokens in front."""
    if not any(c.count > 1 and c.count * (c.start + c.count) > MAX_ROW_PAIRS for c in chunks):
        return len(chunks)
    return next(index for index, chunk in enumerate(chunks) if chunk.count > 1)


def _chunks(chunks: Sequence[Chunk], rows: RequestRows, block_size: int, low: int, notes: Notes) -> list[Words]:
    """The same of any chunks; low: the row of the step with which they begin."""
    first = low
    tokens: list[int] = []
    refs: list[int] = []
    table_rows: list[int] = []
    logit_rows: list[int] = []
    sample_rows: list[int] = []
    own: list[int] = []  # the block of each token
    num_short = _num_short(chunks)
    for index, chunk in enumerate(chunks):
        row = rows.of(chunk.request, notes.arrivals)
        rows.fill(row, chunk.tables, chunk.num_blocks, chunk.start, notes.updates)
        blocks = chunk.blocks
        start, count = chunk.start, chunk.count
        end = start + count
        if end <= chunk.num_tokens:
            tokens += chunk.tokens[start:end]
            refs += [-1] * count
        else:  # its last token is still on the device
            tokens += [*chunk.tokens[start : chunk.num_tokens], 0]
            refs += [*[-1] * (count - 1), row]
        table_rows += [row] * count
        own += [blocks[i // block_size] for i in range(start, end)]
        if index >= num_short:
            notes.tiles.extend((low + i, min(QUERIES, count - i), start + i, row) for i in range(0, count, QUERIES))
        low += count
        for request in chunk.samples:
            logit_rows.append(low - 1)
            sample_rows.append(rows.of(request, notes.arrivals))
    firsts = np.array([chunk.start for chunk in chunks], np.int32)
    counts = np.array([chunk.count for chunk in chunks], np.int32)
    positions = np.arange(low - first, dtype=np.int32) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    slots = np.array(own, np.int32) * block_size + positions % block_size
    columns = [np.array(tokens, np.int32), np.array(refs, np.int32), positions.astype(np.int32), slots.astype(np.int32)]
    return columns + [np.array(values, np.int32) for values in (table_rows, logit_rows, sample_rows)] + [counts]
