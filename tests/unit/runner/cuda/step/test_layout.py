import pytest

from chairlift.core.ids import BlockId
from chairlift.core.plan import Chunk, StepPlan
from chairlift.runner.cuda.step import layout as layout_module
from chairlift.runner.cuda.step.host import HostPart
from chairlift.runner.cuda.step.layout import MAX_ROW_PAIRS
from chairlift.runner.cuda.step.request_rows import RequestRows
from fakes.requests import make_request, make_samples
from fakes.worlds.draws import random_world


def chunk(id: int, start: int, count: int, blocks: list[int], known: int | None = None, samples: bool = True) -> Chunk:
    request = make_request(id, range(start + count), 4)
    tokens = list(range(100, 100 + start + count))
    num_known = start + count if known is None else known
    table = [BlockId(b) for b in blocks]
    return Chunk(request, start, count, tokens, num_known, (table,), len(table), (request,) if samples else ())


def plan(*chunks: Chunk, step: int = 1) -> StepPlan:
    return StepPlan(step, chunks, (), sum(c.count for c in chunks), 0)


def test_tokens_positions_and_slots_follow_the_block_table() -> None:
    step = HostPart(8, 256, block_size=4).input_of(plan(chunk(1, 5, 1, [7, 3]), chunk(2, 0, 3, [9])))
    tokens, refs, positions, slots, table_rows, logit_rows, sample_rows, short = (c.tolist() for c in step.columns)
    assert tokens == [105, 100, 101, 102]
    assert refs == [-1] * 4
    assert positions == short == [5, 0, 1, 2]
    assert slots == [3 * 4 + 1, 36, 37, 38]
    assert table_rows == [0, 1, 1, 1]
    assert (logit_rows, sample_rows) == ([0, 3], [0, 1])
    assert step.updates.tolist() == [[0, 0, 7], [0, 1, 3], [1, 0, 9]]


def test_a_token_that_is_still_on_the_device_is_named_by_its_row() -> None:
    host = HostPart(8, 256, block_size=4)
    host.input_of(plan(chunk(5, 0, 1, [2])))
    step = host.input_of(plan(chunk(1, 5, 1, [7, 3], known=5), step=2))
    assert step.columns.tokens.tolist() == [0]
    assert step.columns.refs.tolist() == [1]


def test_only_new_blocks_travel_unless_the_table_was_replaced() -> None:
    host, first = HostPart(8, 64, 4), chunk(1, 5, 1, [7, 3])
    host.input_of(plan(first))
    longer = first._replace(start=8, tables=([7, 3, 4],), num_blocks=3, tokens=list(range(9)), num_tokens=9)
    assert host.input_of(plan(longer, step=2)).updates.tolist() == [[0, 2, 4]]
    replaced = first._replace(tables=([BlockId(1), BlockId(2)],), num_blocks=2)
    renewed = plan(replaced, step=3)._replace(new_tables=(first.request.id,))
    assert host.input_of(renewed).updates.tolist() == [[0, 0, 1], [0, 1, 2]]
    assert host.input_of(plan(replaced, step=4)).updates.tolist() == []


def test_after_a_step_that_failed_whole_tables_travel_again() -> None:
    host, one = HostPart(8, 64, 4), chunk(1, 5, 1, [7, 3])
    host.input_of(plan(one))
    host.forget_tables()
    assert host.input_of(plan(one, step=2)).updates.tolist() == [[0, 0, 7], [0, 1, 3]]


def test_another_scheduler_may_use_ids_and_versions_again() -> None:
    host = HostPart(8, 64, 4)
    host.input_of(plan(chunk(1, 5, 1, [7, 3]), step=9))
    for _ in range(2):
        assert host.input_of(plan(chunk(1, 5, 1, [5, 6]))).updates.tolist() == [[0, 0, 5], [0, 1, 6]]


def test_the_row_that_was_not_planned_for_longest_goes_to_another() -> None:
    rows, arrivals = RequestRows(2, 9), []
    one, two, three = (make_request(id, range(1)) for id in (1, 2, 3))
    rows.begin(1, ())
    a, b = rows.of(one, arrivals), rows.of(two, arrivals)
    rows.begin(2, ())
    rows.of(one, arrivals)
    rows.begin(3, ())
    assert rows.of(three, arrivals) == b
    assert rows.of(one, arrivals) == a
    assert arrivals == [(a, one), (b, two), (b, three)]


def test_a_long_prompt_is_cut_into_tiles_of_queries() -> None:
    count = 200
    assert count * count > MAX_ROW_PAIRS
    long = chunk(2, 0, count, list(range(50)))
    step = HostPart(4, 64, block_size=4).input_of(plan(chunk(1, 5, 1, [51, 52]), long))
    assert step.tiles.tolist() == [[1, 64, 0, 1], [65, 64, 64, 1], [129, 64, 128, 1], [193, 8, 192, 1]]
    assert step.columns.short.tolist() == [5, *[-1] * count]  # the other kernel leaves those rows alone
    assert step.columns.positions.tolist() == [5, *range(count)]


def test_rows_behind_the_last_that_no_tile_answers_are_not_walked() -> None:
    count = 200
    one, long = chunk(1, 5, 1, [7, 3]), chunk(2, 0, count, list(range(20, 20 + count)))
    both = HostPart(8, 256, block_size=4).input_of(plan(one, long))
    assert (both.num_short, both.max_context) == (1, 6)
    alone = HostPart(8, 256, block_size=4).input_of(plan(long))
    assert (alone.num_short, alone.max_context) == (0, 0)
    behind = HostPart(8, 256, block_size=4).input_of(plan(one, long, chunk(3, 0, 3, [9]), chunk(4, 1, 1, [8])))
    assert (behind.num_short, behind.max_context) == (1, 6)
    assert behind.tiles.tolist()[-2:] == [[1 + count, 3, 0, 2], [4 + count, 1, 1, 3]]


@pytest.mark.parametrize("seed", range(40))
def test_decodes_by_columns_are_laid_out_as_chunks_are(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """In small worlds, where tables are replaced, texts fork, and rows change hands."""
    monkeypatch.setattr(layout_module, "MAX_ROW_PAIRS", 8)
    monkeypatch.setattr(layout_module, "QUERIES", 2)
    world = random_world(seed)
    num_rows = 2 * world.limits.max_running
    by_columns, by_chunks = (HostPart(num_rows, world.limits.num_blocks, world.limits.block_size) for _ in range(2))
    submit = world.runner.submit

    def lay_out_and_submit(plan: StepPlan) -> None:
        one, other = by_columns.input_of(plan), by_chunks.input_of(plan._replace(num_decodes=0))
        assert one.to_bytes() == other.to_bytes()
        submit(plan)

    world.runner.submit = lay_out_and_submit  # type: ignore[method-assign]
    world.run()


def test_a_decode_of_several_samples_keeps_a_row_for_each() -> None:
    lead, sibling = make_samples(1, range(3), 2)
    two = Chunk(lead, 2, 1, [0, 1, 2], 3, ([BlockId(5)],), 1, (lead, sibling))
    columns = HostPart(4, 64, 4).input_of(StepPlan(1, (chunk(7, 5, 1, [7, 3]), two), (), 2, 2)).columns
    assert (columns.logit_rows.tolist(), columns.sample_rows.tolist()) == ([0, 1, 1], [0, 1, 2])
