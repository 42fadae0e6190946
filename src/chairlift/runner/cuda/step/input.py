"""A step as it crosses from the host to the device: one value of plain integers.

`HostPart` makes it from a plan. `DevicePart` needs nothing else and may be in another process, where it comes as bytes:
a head of 64-bit integers, then the arrays as 32-bit ones. Each field's meaning is beside it, here and in `columns.py`.

Always: what lies on the device between steps (block tables, last sampled tokens, keys and values) is changed by step
inputs alone, in the order of their steps. Without torch.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from chairlift.runner.cuda.sampling.rows import CHANGE_WIDTH, DRAW_WIDTH, PENALTY_WIDTH, SamplingRows
from chairlift.runner.cuda.step.columns import NUM_COLUMNS, Columns, Words
from chairlift.runner.cuda.step.states import SPAN_WIDTH, UNIT_WIDTH, StateWords
from chairlift.runner.sampling.scores import PromptTargets
from chairlift.runner.sampling.table import SAMPLE

_MAGIC = 0x50455453_52494843  # the bytes CHIRSTEP, and the version behind them
_VERSION = 4


class StepInput(NamedTuple):
    step: int
    num_short: int  # rows up to the last that no tile answers
    max_context: int  # of these
    columns: Columns
    counts: Words  # tokens of each chunk
    tiles: Words  # [N, 4]: first row of the step, queries, position of the first, row of the table
    # [N, 3]: (row, place, block) that the block tables lack; rows of other groups of layers follow those of the first
    updates: Words
    swap_outs: Words  # [N, 2]: (source, target) blocks; moved before anything is computed, in this order
    swap_ins: Words
    copies: Words
    sampling: SamplingRows
    prompt_spans: Words  # [N, 3]: first row, tokens, rivals told of; of prompts that are scored
    prompt_tokens: Words  # that these rows predict, one span after the other
    view_slots: Words  # as `slots`, of each other group of layers, one after the other
    adapters: Words  # the slot of each token's adapter, -1: it has none; empty where no token has one
    states: StateWords  # of layers with states

    @property
    def num_tokens(self) -> int:
        return len(self.columns.tokens)

    @property
    def num_samples(self) -> int:
        return len(self.columns.sample_rows)

    def prompt_targets(self) -> Iterator[PromptTargets]:
        low = 0
        for first, count, num_top in self.prompt_spans.tolist():
            yield PromptTargets(first, self.prompt_tokens[low : low + count].tolist(), num_top)
            low += count

    def to_bytes(self) -> bytes:
        arrays = [
            *self.columns, self.counts, self.tiles, self.updates, self.swap_outs, self.swap_ins, self.copies,
            *self.sampling, self.prompt_spans, self.prompt_tokens, self.view_slots, self.adapters,
            *self.states,
        ]  # fmt: skip
        lengths = [len(array) for array in arrays]
        head = np.array([_MAGIC, _VERSION, self.step, self.num_short, self.max_context, *lengths], np.int64)
        return head.tobytes() + np.concatenate([array.ravel() for array in arrays]).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "StepInput":
        """Its arrays are views of the data."""
        head = np.frombuffer(data, np.int64, _NUM_NUMBERS + len(_WIDTHS)).tolist()
        if head[:2] != [_MAGIC, _VERSION]:
            raise ValueError(f"not a step input of version {_VERSION}")
        rest = np.frombuffer(data, np.int32, offset=8 * len(head))
        arrays: list[Any] = []
        low = 0
        for length, width in zip(head[_NUM_NUMBERS:], _WIDTHS, strict=True):
            part = rest[low : low + length * (width or 1)]
            arrays.append(part.reshape(length, width) if width else part)
            low += len(part)
        columns, sampling = Columns(*arrays[:8]), SamplingRows(*arrays[14:21])
        return cls._make(
            (*head[2:_NUM_NUMBERS], columns, *arrays[8:14], sampling, *arrays[21:-3], StateWords(*arrays[-3:]))
        )


_NUM_NUMBERS = 5  # in front of the lengths
# Words of an entry of each array; 0: it has one dimension.
_WIDTHS = (
    *[0] * NUM_COLUMNS, 0, 4, 3, 2, 2, 2,
    DRAW_WIDTH, PENALTY_WIDTH, CHANGE_WIDTH, SAMPLE.itemsize // 4, 0, 0, 0, 3, 0, 0, 0,
    SPAN_WIDTH, UNIT_WIDTH, 0,
)  # fmt: skip


def words(numbers: object, width: int) -> Words:
    """[N, width] of any nested numbers, none included."""
    return np.array(numbers, np.int32).reshape(-1, width)
