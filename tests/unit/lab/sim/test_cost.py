import pytest

from chairlift.core.ids import BlockId
from chairlift.core.plan import BlockCopy, Chunk, StepPlan
from chairlift.lab.sim.cost import CostModel, StepShape, shape_of
from fakes.requests import make_request

TABLE = ((1, 10.0), (4, 10.0), (8, 20.0))


def chunk(start: int, count: int, num_samples: int = 1) -> Chunk:
    request = make_request(1, range(64))
    return Chunk(request, start, count, request.prompt, 64, ((),), 0, (request,) * num_samples)


def test_a_shape_counts_what_a_plan_computes() -> None:
    copies = (BlockCopy(BlockId(0), BlockId(1)),)
    plan = StepPlan(1, (chunk(10, 1), chunk(4, 1), chunk(6, 3, 0), chunk(0, 2, 2)), copies, 7, 2, copies * 2, copies)
    shape = shape_of(plan, block_size=4)
    assert shape == StepShape(
        num_rows=7, num_chunks=4, num_samples=4, decode_context=16, prompt_context=11,
        prompt_pairs=(7 + 8 + 9) + (1 + 2), num_copied=4, num_swapped=12,
    )  # fmt: skip


def test_a_decode_with_drafts_counts_as_a_prompt_chunk_that_samples_at_each_token() -> None:
    drafting = chunk(10, 4)._replace(drafts=(1, 2, 3))
    shape = shape_of(StepPlan(1, (chunk(4, 1), drafting), (), 5, 1, num_drafting=1), 4)
    assert (shape.num_rows, shape.num_samples, shape.decode_context) == (5, 5, 5)
    assert (shape.prompt_context, shape.prompt_pairs) == (14, 11 + 12 + 13 + 14)


def test_short_chunks_count_as_decodes_where_they_are_computed_row_by_row() -> None:
    plan = StepPlan(1, (chunk(10, 1), chunk(6, 3), chunk(0, 9)), (), 13, 1)
    shape = shape_of(plan, 4, max_row_pairs=27)  # 3 x 9, the other has 9 x 9
    assert (shape.decode_context, shape.prompt_context, shape.prompt_pairs) == (11 + 7 + 8 + 9, 9, 45)


def test_a_padded_prompt_costs_as_much_as_a_long_one() -> None:
    padded = shape_of(StepPlan(1, (chunk(10, 1), chunk(0, 3)), (), 4, 1), 4, min_prompt_rows=8)
    long = shape_of(StepPlan(1, (chunk(10, 1), chunk(0, 8)), (), 9, 1), 4, min_prompt_rows=8)
    assert padded == long
    assert padded.num_rows == 9


@pytest.mark.parametrize(("rows", "seconds"), [(1, 10.0), (2, 10.0), (4, 10.0), (5, 12.5), (8, 20.0), (16, 40.0)])
def test_the_table_is_linear_between_its_rows_and_past_them(rows: int, seconds: float) -> None:
    assert CostModel(linear=TABLE).linear_s(rows) == pytest.approx(seconds)


def test_fewer_rows_than_the_table_has_cost_as_much_as_its_first() -> None:
    assert CostModel(linear=((16, 3.0), (32, 4.0))).linear_s(2) == 3.0
    assert CostModel(linear=((16, 3.0),)).linear_s(99) == 3.0


def test_every_part_counts() -> None:
    cost = CostModel(
        linear=TABLE, step_s=1.0, sample_s=2.0, chunk_s=3.0, kv_token_s=5.0, pair_s=7.0, copy_token_s=11.0,
        swap_token_s=13.0,
    )  # fmt: skip
    shape = StepShape(1, 1, 1, 1, 0, 1, 1, 1)
    assert cost.seconds(shape) == 10.0 + 1.0 + 2.0 + 3.0 + 5.0 + 7.0 + 11.0 + 13.0


def test_a_step_without_rows_only_moves_slots() -> None:
    cost = CostModel(linear=((1, 1.0),), step_s=1.0, swap_token_s=0.25)
    assert cost.seconds(StepShape(0, 0, 0, 0, 0, 0, num_swapped=8)) == 2.0


def test_prompt_attention_is_bound_by_work_or_by_memory() -> None:
    cost = CostModel(linear=((1, 0.0),), kv_token_s=5.0, pair_s=1.0)
    assert cost.seconds(StepShape(1, 1, 0, 0, 10, 4)) == 50.0
    assert cost.seconds(StepShape(1, 1, 0, 0, 10, 400)) == 400.0


def test_a_step_with_prompts_takes_no_less_than_its_launch() -> None:
    cost = CostModel(linear=TABLE, pair_s=1.0, launch_s=15.0)
    assert cost.seconds(StepShape(1, 1, 1, 9, 0, 0)) == 10.0
    assert cost.seconds(StepShape(1, 1, 1, 0, 2, 3)) == 15.0
    assert cost.seconds(StepShape(1, 1, 1, 0, 2, 30)) == 40.0


def test_the_times_of_prompts_have_all_parts() -> None:
    cost = CostModel(linear=((3, 10.0), (6, 40.0)), step_s=100.0, pair_s=1.0, kv_token_s=0.25, max_row_pairs=4)
    assert cost.prompt_times(7) == (
        (1, 110.25), (2, 110.75), (3, 116.0), (4, 130.0), (6, 161.0),
    )  # fmt: skip


def test_rows_are_padded_to_the_next_rung() -> None:
    cost = CostModel(linear=((64, 1.0), (128, 2.0), (256, 3.0)), rungs=(64, 128))
    assert [cost.linear_s(rows) for rows in (1, 64, 65, 128)] == [1.0, 1.0, 2.0, 2.0]
    assert cost.linear_s(192) == 2.5  # above the last rung nothing is padded


def test_a_step_with_prompts_costs_more_however_many_they_are() -> None:
    cost = CostModel(linear=((1, 1.0),), prompt_s=0.5)
    decodes, prompts, both = (2, 2, 2, 10, 0, 0), (4, 1, 1, 0, 4, 10), (6, 3, 3, 10, 4, 10)
    assert [cost.seconds(StepShape(*shape)) for shape in (decodes, prompts, both)] == [1.0, 1.5, 1.5]
