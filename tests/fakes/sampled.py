"""Tokens chosen for requests one by one: what is packed and selected for a step, made short."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from chairlift.core.ids import BlockId
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.request import Request
from chairlift.runner.cuda.step.host import HostPart
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.ops import Ops
from chairlift.runner.sampling.sampler import Chosen, choose, shape_logits
from chairlift.runner.sampling.table import Changes, Samples, SamplingTable

_MASK = 2**64 - 1


class Row(NamedTuple):
    """One token to choose: tokens[:num_tokens] are the prompt and the output so far."""

    request: Request
    tokens: Sequence[int]
    num_tokens: int


def samples_of(rows: Sequence[Row]) -> Samples:
    return _selected(rows)[0]


def shape(logits: Tensor, rows: Sequence[Row]) -> None:
    samples, changes = _selected(rows)
    shape_logits(logits, samples, [row.tokens for row in rows], changes)


def sample(logits: Tensor, rows: Sequence[Row], ops: Ops) -> Chosen:
    shape(logits, rows)
    return choose(logits, samples_of(rows), ops)


def _selected(rows: Sequence[Row]) -> tuple[Samples, list[tuple[int, Changes]]]:
    table, places = SamplingTable(len(rows)), np.arange(len(rows))
    for place, row in enumerate(rows):
        table.pack(place, row.request)
    samples = table.select(places, np.array([row.num_tokens for row in rows]))
    return samples, table.changes(samples, places)


def step_of(requests: list[Request], length: int) -> StepInput:
    """Each computes the last of this many tokens; row i of the logits is request i's, and so is row i of the device."""
    blocks = [BlockId(0)] * length
    chunks = [Chunk(r, length - 1, 1, range(length), length, (blocks,), length, (r,)) for r in requests]
    return HostPart(len(requests), length, 1).input_of(StepPlan(1, tuple(chunks), (), len(chunks), len(chunks)))


def uniform(seed: int, sample_index: int, position: int, attempt: int = 0) -> float:
    """The noise, number by number."""
    state = seed & _MASK
    for value in (sample_index, position, attempt):
        state = _mixed(state) ^ value
    return float(_mixed(state) >> 12) * 2.0**-52


def _mixed(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
