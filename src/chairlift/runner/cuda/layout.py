"""A plan as columns of integers, ready to travel to the device; plain numpy, so that it is tested anywhere.

tokens      what to compute; 0 where the token is not known yet
refs        the row whose last sampled token stands in for it; -1 where it is known
positions   -1 for padding
slots       where keys and values go; -1 for padding
table_rows  the row of the block tables
logit_rows  rows of the step whose logits are wanted, one for each sample
sample_rows where each sampled token is kept; -1 for padding
short       positions again, -1 for padding and for what tiles of queries answer
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chairlift.core.plan import StepPlan
from chairlift.core.request import Request
from chairlift.runner.cuda.rows import Rows

NUM_COLUMNS = 8
FILLERS = (0, -1, -1, -1, 0, 0, -1, -1)
# A prompt chunk with more pairs of queries and keys than this is answered by tiles of queries, not row by row.
MAX_ROW_PAIRS = 64 * 256


@dataclass(frozen=True, slots=True)
class Layout:
    columns: list[NDArray[np.int32]]
    updates: list[tuple[int, int, int]]  # (row, place, block) that the device's tables lack
    arrivals: list[tuple[int, Request]]  # who got which row
    tiles: list[tuple[int, int, int, int]]  # first row of the step, queries, position of the first, row of the table
    counts: NDArray[np.int32]  # tokens of each chunk
    num_tokens: int
    num_samples: int
    num_short: int  # rows up to the last that no tile answers
    max_context: int  # of these

    @property
    def positions(self) -> NDArray[np.int32]:
        return self.columns[2]

    @property
    def table_rows(self) -> NDArray[np.int32]:
        return self.columns[4]

    @property
    def logit_rows(self) -> NDArray[np.int32]:
        return self.columns[5]

    @property
    def sample_rows(self) -> NDArray[np.int32]:
        return self.columns[6]


def lay_out(plan: StepPlan, rows: Rows, block_size: int, num_queries: int) -> Layout:
    chunks = plan.chunks
    updates: list[tuple[int, int, int]] = []
    arrivals: list[tuple[int, Request]] = []
    tiles: list[tuple[int, int, int, int]] = []
    tokens: list[int] = []
    refs: list[int] = []
    table_rows: list[int] = []
    logit_rows: list[int] = []
    sample_rows: list[int] = []
    blocks: list[int] = []  # of each token
    low = 0
    for chunk in chunks:
        row = rows.of(chunk.request, arrivals)
        rows.fill(row, chunk.blocks, chunk.num_blocks, updates)
        start, count = chunk.start, chunk.count
        end = start + count
        if end <= chunk.num_tokens:
            refs.append(-1) if count == 1 else refs.extend([-1] * count)
            tokens.append(chunk.tokens[start]) if count == 1 else tokens.extend(chunk.tokens[start:end])
        else:  # its last token is still on the device
            tokens += [*chunk.tokens[start : chunk.num_tokens], 0]
            refs += [*[-1] * (count - 1), row.index]
        if count == 1:
            table_rows.append(row.index)
            blocks.append(chunk.blocks[start // block_size])
        else:
            table_rows += [row.index] * count
            blocks += [chunk.blocks[i // block_size] for i in range(start, end)]
            if count * end > MAX_ROW_PAIRS:
                tiles += [
                    (low + i, min(num_queries, count - i), start + i, row.index) for i in range(0, count, num_queries)
                ]
        low += count
        for request in chunk.samples:
            logit_rows.append(low - 1)
            sample_rows.append(rows.of(request, arrivals).index)
    firsts = np.fromiter((chunk.start for chunk in chunks), np.int32, len(chunks))
    counts = np.fromiter((chunk.count for chunk in chunks), np.int32, len(chunks))
    positions = np.arange(low, dtype=np.int32) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    slots = np.array(blocks, np.int32) * block_size + positions % block_size
    columns = [np.array(tokens, np.int32), np.array(refs, np.int32), positions.astype(np.int32), slots.astype(np.int32)]
    columns += [np.array(values, np.int32) for values in (table_rows, logit_rows, sample_rows)]
    columns.append(columns[2].copy() if tiles else columns[2])
    for first, count, _, _ in tiles:
        columns[-1][first : first + count] = -1
    short = np.flatnonzero(columns[-1] >= 0)
    num_short = int(short[-1]) + 1 if len(short) else 0
    max_context = int(columns[-1].max()) + 1
    return Layout(columns, updates, arrivals, tiles, counts, low, len(logit_rows), num_short, max_context)
