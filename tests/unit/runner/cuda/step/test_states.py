"""Layers with states in step inputs: the pages of each group, spans and their tiles, and further states."""

import numpy as np

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.memory.pages import Group, pages_of
from chairlift.core.plan import Checkpoint, Chunk, StepPlan
from chairlift.runner.cuda.step.host import HostPart
from chairlift.runner.cuda.step.input import StepInput
from fakes.requests import make_request

# Two groups, each with three pages of a state and one of rows.
KINDS = pages_of(4, 64, (Group("fixed", 6, 4, 2),)).kinds
OWN = list(range(20, 36))  # rows, state, rows, state


def step_of(host: HostPart, number: int, start: int, count: int, *checkpoints: Checkpoint) -> StepInput:
    text = list(range(40))
    blocks = [BlockId(block) for block in range(10)]
    chunk = Chunk(make_request(7, text), start, count, text, 40, (blocks, list(map(BlockId, OWN))), 10, ())
    plan = StepPlan(number, (chunk,), (), count, 0, checkpoints=checkpoints)
    return StepInput.from_bytes(host.input_of(plan).to_bytes())


def test_each_group_has_its_pages_of_both_halves_once() -> None:
    host = HostPart(3, 16, 4, KINDS, (2,))
    first, second = step_of(host, 1, 0, 6), step_of(host, 2, 6, 1)
    tables = {row: {} for row in (4, 8)}  # each group's first row, behind the blocks'
    for row, place, page in first.updates.tolist():
        tables.get(row, {})[place] = page
    assert [list(tables[row].values()) for row in (4, 8)] == [
        [20, 22, 23, 24, 28, 30, 31, 32],
        [21, 25, 26, 27, 29, 33, 34, 35],
    ]
    assert len(second.updates) == 0


def test_a_span_has_a_unit_for_each_tile_that_it_touches() -> None:
    states = step_of(HostPart(3, 16, 4, KINDS, (2,)), 1, 6, 7).states
    assert states.spans.tolist() == [[0, 7, 6, 0, 0, 0, 0]]
    assert states.units.tolist() == [[0, 1], [0, 2], [0, 3]]
    assert len(states.writes) == 0


def test_further_states_are_in_the_order_in_which_tokens_pass_them() -> None:
    late, early = (Checkpoint(RequestId(7), 0, position, (BlockId(position),) * 6) for position in (12, 8))
    states = step_of(HostPart(3, 16, 4, KINDS, (2,)), 1, 6, 7, late, early).states
    assert states.spans[0, 5:].tolist() == [0, 2]
    assert np.array_equal(states.writes.reshape(2, 7), [[8] * 7, [12] * 7])
