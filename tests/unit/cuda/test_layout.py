import pytest

from chairlift.core.ids import BlockId
from chairlift.core.plan import Chunk, StepPlan
from chairlift.runner.cuda import layout as layout_module
from chairlift.runner.cuda.layout import MAX_ROW_PAIRS, lay_out
from chairlift.runner.cuda.rows import Rows
from fakes.requests import make_request, make_samples
from fakes.world import random_world


def chunk(id: int, start: int, count: int, blocks: list[int], known: int | None = None, samples: bool = True) -> Chunk:
    request = make_request(id, range(start + count), 4)
    tokens = list(range(100, 100 + start + count))
    num_known = start + count if known is None else known
    table = [BlockId(b) for b in blocks]
    return Chunk(request, start, count, tokens, num_known, table, len(table), (request,) if samples else ())


def plan(*chunks: Chunk) -> StepPlan:
    return StepPlan(1, chunks, (), sum(c.count for c in chunks), 0)


def test_tokens_positions_and_slots_follow_the_block_table() -> None:
    layout = lay_out(plan(chunk(1, 5, 1, [7, 3]), chunk(2, 0, 3, [9])), Rows(8), block_size=4)
    tokens, refs, positions, slots, table_rows, logit_rows, sample_rows, short = (c.tolist() for c in layout.columns)
    assert tokens == [105, 100, 101, 102]
    assert refs == [-1] * 4
    assert positions == short == [5, 0, 1, 2]
    assert slots == [3 * 4 + 1, 36, 37, 38]
    assert table_rows == [0, 1, 1, 1]
    assert (logit_rows, sample_rows) == ([0, 3], [0, 1])
    assert layout.updates == [(0, 0, 7), (0, 1, 3), (1, 0, 9)]


def test_a_token_that_is_still_on_the_device_is_named_by_its_row() -> None:
    rows = Rows(8)
    rows.of(make_request(5, range(1)), [])
    layout = lay_out(plan(chunk(1, 5, 1, [7, 3], known=5)), rows, block_size=4)
    assert layout.columns[0].tolist() == [0]
    assert layout.columns[1].tolist() == [1]


def test_only_new_blocks_travel_unless_the_table_was_replaced() -> None:
    rows, first = Rows(8), chunk(1, 5, 1, [7, 3])
    lay_out(plan(first), rows, 4)
    first.blocks.append(BlockId(4))  # type: ignore[attr-defined]
    assert lay_out(
        plan(first._replace(start=8, num_blocks=3, tokens=list(range(9)), num_tokens=9)), rows, 4
    ).updates == [(0, 2, 4)]
    replaced = first._replace(blocks=[BlockId(1), BlockId(2)], num_blocks=2)
    assert lay_out(plan(replaced), rows, 4).updates == [(0, 0, 1), (0, 1, 2)]


def test_after_a_step_that_failed_whole_tables_travel_again() -> None:
    rows, one = Rows(8), chunk(1, 5, 1, [7, 3])
    lay_out(plan(one), rows, 4)
    rows.forget_tables()
    assert lay_out(plan(one), rows, 4).updates == [(0, 0, 7), (0, 1, 3)]


def test_the_row_of_whoever_was_not_planned_for_longest_goes_to_another() -> None:
    rows, arrivals = Rows(2), []
    one, two, three = (make_request(id, range(1)) for id in (1, 2, 3))
    a, b = rows.of(one, arrivals), rows.of(two, arrivals)
    rows.of(one, arrivals)
    assert rows.of(three, arrivals) is b
    assert rows.of(one, arrivals) is a
    assert arrivals == [(a.index, one), (b.index, two), (b.index, three)]


def test_a_long_prompt_is_cut_into_tiles_of_queries() -> None:
    count = 200
    assert count * count > MAX_ROW_PAIRS
    long = chunk(2, 0, count, list(range(50)))
    layout = lay_out(plan(chunk(1, 5, 1, [51, 52]), long), Rows(4), block_size=4)
    assert layout.tiles == [(1, 64, 0, 1), (65, 64, 64, 1), (129, 64, 128, 1), (193, 8, 192, 1)]
    assert layout.columns[7].tolist() == [5, *[-1] * count]  # the other kernel leaves those rows alone
    assert layout.positions.tolist() == [5, *range(count)]


def test_rows_behind_the_last_that_no_tile_answers_are_not_walked() -> None:
    count = 200
    one, long = chunk(1, 5, 1, [7, 3]), chunk(2, 0, count, list(range(20, 20 + count)))
    both = lay_out(plan(one, long), Rows(8), block_size=4)
    assert (both.num_short, both.max_context) == (1, 6)
    alone = lay_out(plan(long), Rows(8), block_size=4)
    assert (alone.num_short, alone.max_context) == (0, 0)
    behind = lay_out(plan(long, chunk(3, 0, 3, [9])), Rows(8), block_size=4)
    assert (behind.num_short, behind.max_context) == (count + 3, 3)


@pytest.mark.parametrize("seed", range(40))
def test_decodes_by_columns_are_laid_out_as_chunks_are(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """In small worlds, where tables are replaced, texts fork, and rows change hands."""
    monkeypatch.setattr(layout_module, "MAX_ROW_PAIRS", 8)
    monkeypatch.setattr(layout_module, "QUERIES", 2)
    world = random_world(seed)
    num_rows = 2 * world.limits.max_running
    by_columns, by_chunks = Rows(num_rows), Rows(num_rows)
    size, submit = world.limits.block_size, world.runner.submit

    def lay_out_and_submit(plan: StepPlan) -> None:
        one = lay_out(plan, by_columns, size)
        other = lay_out(plan._replace(num_decodes=0), by_chunks, size)
        assert [column.tolist() for column in one.columns] == [column.tolist() for column in other.columns]
        assert one.counts.tolist() == other.counts.tolist()
        for name in ("updates", "arrivals", "tiles", "num_tokens", "num_samples", "num_short", "max_context"):
            assert getattr(one, name) == getattr(other, name)
        submit(plan)

    world.runner.submit = lay_out_and_submit  # type: ignore[method-assign]
    world.run()


def test_another_request_under_the_same_name_is_told_of_among_decodes_too() -> None:
    rows, one, other = Rows(4), chunk(1, 5, 1, [7, 3]), chunk(1, 5, 1, [7, 3])
    for each in (one, other, one):
        step = plan(each)._replace(num_decodes=1)
        assert lay_out(step, rows, 4).arrivals == [(0, each.request)]
        assert lay_out(step, rows, 4).arrivals == []


def test_a_decode_of_several_samples_keeps_a_row_for_each() -> None:
    lead, sibling = make_samples(1, range(3), 2)
    two = Chunk(lead, 2, 1, [0, 1, 2], 3, [BlockId(5)], 1, (lead, sibling))
    layout = lay_out(StepPlan(1, (chunk(7, 5, 1, [7, 3]), two), (), 2, 2), Rows(4), 4)
    assert (layout.logit_rows.tolist(), layout.sample_rows.tolist()) == ([0, 1, 1], [0, 1, 2])
