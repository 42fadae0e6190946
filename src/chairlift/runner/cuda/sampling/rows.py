"""The sampling rows of a step: the sampling table's rows of its samples, as words for Triton kernels; plain numpy.

A request's row of the table is packed when it gets a row of the device: no Python runs for each sample. Numbers that
are not integers are float32, in their bits.

    draws      row of the logits, row that keeps the token, temperature (0: the argmax), filters, noise for the first
               attempt and for those that may follow
    penalties  row of the logits, row of the block tables, tokens so far, of those in the prompt, repetition, presence,
               frequency
    changes    row of the logits, token id, what is added to its logit
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chairlift.runner.cuda.step.columns import Columns, Words
from chairlift.runner.sampling.noise import uniforms
from chairlift.runner.sampling.table import (
    FAST,
    IS_CHOSEN,
    IS_MASKED,
    IS_PENALISED,
    IS_SCORED,
    IS_SLOW,
    MAX_ATTEMPTS,
    SAMPLE,
    Samples,
    SamplingTable,
)  # fmt: skip

_DRAW = np.dtype(
    [
        ("row", np.int32), ("keeper", np.int32), ("temperature", np.float32),
        *((name, np.int32 if SAMPLE[name].kind == "i" else np.float32) for name in FAST),
        ("noise", np.float32, (1 + MAX_ATTEMPTS,)),
    ]
)  # fmt: skip
_PENALTY = np.dtype(
    [
        ("row", np.int32), ("table_row", np.int32), ("position", np.int32), ("num_prompt", np.int32),
        ("repetition", np.float32), ("presence", np.float32), ("frequency", np.float32),
    ]
)  # fmt: skip
_CHANGE = np.dtype([("row", np.int32), ("token", np.int32), ("added", np.float32)])
MAX_PENALISED = 64  # rows that are penalised at once: bounds the memory of their counts
DRAW_WIDTH, PENALTY_WIDTH, CHANGE_WIDTH = (kind.itemsize // 4 for kind in (_DRAW, _PENALTY, _CHANGE))


class SamplingRows(NamedTuple):
    draws: Words  # [D, DRAW_WIDTH]
    penalties: Words  # [P, PENALTY_WIDTH]
    changes: Words  # [C, CHANGE_WIDTH]
    slow: Words  # [R, words of a row of the sampling table]: the torch sampler's to draw
    scored: Words  # [R]: rows of the logits
    num_top: Words  # [R]
    structured: Words  # [R]: rows of the logits that are held to a shape


def _words(rows: NDArray[np.void]) -> Words:
    return rows.view(np.int32).reshape(-1, rows.itemsize // 4)


_NO_ROWS = SamplingRows(
    *(_words(np.zeros(0, kind)) for kind in (_DRAW, _PENALTY, _CHANGE, SAMPLE)),
    *[np.zeros(0, np.int32)] * 3,
)  # fmt: skip


def sampling_rows(table: SamplingTable, columns: Columns) -> SamplingRows:
    sample_rows, logit_rows = columns.sample_rows, columns.logit_rows
    kinds = table.rows["kind"][sample_rows]
    if not kinds.any():  # every token is simply the argmax
        return _NO_ROWS
    samples = table.select(sample_rows, columns.positions[logit_rows] + 1)
    scored = np.flatnonzero(kinds & IS_SCORED).astype(np.int32)
    return SamplingRows(
        _draws(samples[kinds & (IS_CHOSEN | IS_SLOW) == IS_CHOSEN], sample_rows),
        _penalties(samples[kinds & IS_PENALISED > 0], columns.table_rows[logit_rows]),
        _changes(table, samples, sample_rows),
        _words(samples[kinds & IS_SLOW > 0]),
        scored,
        samples["num_top"][scored],
        np.flatnonzero(kinds & IS_MASKED).astype(np.int32),
    )


def _draws(samples: Samples, sample_rows: Words) -> Words:
    draws = _taken(samples, _DRAW)
    draws["keeper"] = sample_rows[samples["row"]]
    draws["noise"] = uniforms(samples["stream"], samples["position"], range(1 + MAX_ATTEMPTS))
    return _words(draws)


def _penalties(samples: Samples, table_rows: Words) -> Words:
    penalties = _taken(samples, _PENALTY)
    penalties["table_row"] = table_rows[samples["row"]]
    return _words(penalties)


def _taken(samples: Samples, kind: np.dtype[Any]) -> NDArray[np.void]:
    """The fields that both have."""
    rows = np.empty(len(samples), kind)
    for name in (kind.names or ()) if len(samples) else ():
        if name in (SAMPLE.names or ()):
            rows[name] = samples[name]
    return rows


def _changes(table: SamplingTable, samples: Samples, sample_rows: Words) -> Words:
    parts = table.changes(samples, sample_rows)
    changes = np.empty(sum(len(part) for _, part in parts), _CHANGE)
    low = 0
    for row, part in parts:
        own = changes[low : low + len(part)]
        own["row"], own["token"], own["added"] = row, part["token"], part["added"]
        low += len(part)
    return _words(changes)
