"""The host's part of a step: from a plan to its step input.

Always: it knows what the device holds of requests, so a step input has only the rest. Knows nothing of tensors.
"""

from collections.abc import Sequence

import numpy as np

from chairlift.core.ids import RequestId
from chairlift.core.memory.pages import Fixed, Kind
from chairlift.core.plan import BlockCopy, Chunk, StepPlan
from chairlift.core.request import Request
from chairlift.models.kv_groups import WHOLE, Fit
from chairlift.runner.cuda.sampling.rows import sampling_rows
from chairlift.runner.cuda.step.columns import Columns, Words
from chairlift.runner.cuda.step.input import StepInput, words
from chairlift.runner.cuda.step.layout import Notes, lay_out, view_slots
from chairlift.runner.cuda.step.request_rows import RequestRows
from chairlift.runner.cuda.step.states import NO_STATES, StateWords, state_words
from chairlift.runner.sampling.scores import prompt_targets
from chairlift.runner.sampling.table import SamplingTable

_NO_MOVES = words((), 2)
_NO_SLOTS = np.zeros(0, np.int32)
_NO_SCORES = words((), 3), np.zeros(0, np.int32)
_NO_ADAPTERS = np.zeros(0, np.int32)


class HostPart:
    def __init__(
        self, num_rows: int, table_width: int, block_size: int, kinds: Sequence[Kind] = (),
        num_groups: Sequence[int] = (), fit: Fit = WHOLE,
    ) -> None:  # fmt: skip
        """Of the device: its rows, and the blocks of each in the block tables. num_groups: of layers of each kind."""
        self._rows = RequestRows(num_rows, table_width, kinds, num_groups, fit)
        self._view_size = block_size // fit.pages_a_block
        self._has_views = len(self._rows.view_tables) > 0
        self._has_states = any(isinstance(kind, Fixed) for kind in kinds)
        self._table = SamplingTable(num_rows)
        self._block_size = block_size

    def input_of(self, plan: StepPlan) -> StepInput:
        self._rows.begin(plan.step, plan.new_tables)
        notes = Notes([], [], [])
        columns, counts = lay_out(plan, self._rows, self._block_size, notes)
        for row, request in notes.arrivals:
            self._table.pack(row, request)
        short = columns.short
        num_short = len(short)
        if notes.tiles:
            num_short = int(np.max(np.flatnonzero(short >= 0), initial=-1)) + 1
        tiles, updates, max_context = words(notes.tiles, 4), words(notes.updates, 3), int(short.max()) + 1
        moves = _moves(plan.swap_outs), _moves(plan.swap_ins), _moves(plan.copies)
        sampling = sampling_rows(self._table, columns)
        slots = view_slots(columns, self._rows, self._view_size) if self._has_views else _NO_SLOTS
        return StepInput(
            plan.step, num_short, max_context, columns, counts, tiles, updates, *moves, sampling,
            *_prompt_scores(plan), slots, _adapters(plan, counts), self._states(plan, columns, counts),
        )  # fmt: skip

    def _states(self, plan: StepPlan, columns: Columns, counts: Words) -> StateWords:
        if not self._has_states:
            return NO_STATES
        return state_words(plan.chunks, counts, columns.table_rows, plan.checkpoints, self._block_size)

    def skip(self, plan: StepPlan) -> None:
        """A plan that computes nothing still tells which tables are others."""
        self._rows.begin(plan.step, plan.new_tables)

    def forget_tables(self) -> None:
        """After a step that failed on the device: all of them travel again."""
        self._rows.forget_tables()


def _moves(moves: Sequence[BlockCopy]) -> Words:
    return words(moves, 2) if moves else _NO_MOVES


def _adapters(plan: StepPlan, counts: Words) -> Words:
    """The slot of each token's adapter."""
    if not plan.adapters:
        return _NO_ADAPTERS
    slots = dict(plan.adapters)
    each = [slots.get(chunk.request.attributes.adapter, -1) for chunk in plan.chunks]
    return np.repeat(np.array(each, np.int32), counts)


def _prompt_scores(plan: StepPlan) -> tuple[Words, Words]:
    targets = prompt_targets(plan).values()
    if not targets:
        return _NO_SCORES
    spans = [(each.first, len(each.tokens), each.num_top) for each in targets]
    return words(spans, 3), np.array([token for each in targets for token in each.tokens], np.int32)


def is_known(plan: StepPlan, step: StepInput) -> bool:
    """Whether no answer that is held to a shape has a token that the step ahead is still to bring."""
    return all(chunk.start + chunk.count <= chunk.num_tokens for _, chunk in _held(plan, step))


def structured_rows(plan: StepPlan, step: StepInput, last: dict[RequestId, int]) -> list[tuple[Request, list[int]]]:
    """Those answers with the tokens that they have so far, in the order of the step input's rows. last: tokens of the
    step ahead. One that ends its answer, means nothing or never came is left out: what comes after is thrown away."""
    rows = []
    for request, chunk in _held(plan, step):
        output = list(chunk.tokens[len(request.prompt) : chunk.num_tokens])
        if chunk.start + chunk.count > chunk.num_tokens:
            token = last.get(request.id, -1)
            output += [token] if token >= 0 and token not in request.stop_ids else []
        rows.append((request, output))
    return rows


def _held(plan: StepPlan, step: StepInput) -> list[tuple[Request, Chunk]]:
    """The answers of a step that are held to a shape."""
    samples = [(request, chunk) for chunk in plan.chunks for request in chunk.samples]
    return [samples[row] for row in step.sampling.structured.tolist()]
