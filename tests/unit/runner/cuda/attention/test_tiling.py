import pytest

from chairlift.runner.cuda.attention import paged
from chairlift.runner.cuda.attention.tiling import choose_tiling


@pytest.mark.parametrize("has_groups", [False, True])
@pytest.mark.parametrize("num_rows", [1, 16, 17, 127, 128, 512])
@pytest.mark.parametrize("max_context", [0, 1, 64, 65, 512, 513, 5000])
def test_the_splits_cover_the_context_and_none_is_empty(num_rows: int, max_context: int, has_groups: bool) -> None:
    split, num_splits, tile, _ = choose_tiling(num_rows, max_context, has_groups)
    assert split % tile == 0
    assert num_splits >= 1
    assert (num_splits - 1) * split < max(1, max_context) <= num_splits * split


@pytest.mark.parametrize("has_groups", [False, True])
@pytest.mark.parametrize("num_rows", [1, 16, 112, 512, 4096, 100_000])
def test_one_long_context_among_many_rows_takes_no_more_memory_than_among_few(num_rows: int, has_groups: bool) -> None:
    split, num_splits, tile, _ = choose_tiling(num_rows, 1 << 17, has_groups)
    assert num_rows * num_splits <= max(1 << 16, num_rows)
    assert split % tile == 0 and split * num_splits == 1 << 17


def test_few_rows_are_split_finer_than_many() -> None:
    assert split(1, 4096) < split(64, 4096) < split(256, 4096)
    assert split(256, 512) < split(512, 512) < split(512, 8192)


def test_long_contexts_of_few_rows_are_not_cut_into_hundreds() -> None:
    assert all(choose_tiling(rows, 16384, has_groups=True).num_splits <= 16 for rows in (2, 4, 12, 16, 64))
    assert choose_tiling(4, 512, has_groups=True).num_splits == 8


def split(num_rows: int, max_context: int) -> int:
    return choose_tiling(num_rows, max_context, has_groups=False).split


@pytest.mark.parametrize("has_groups", [False, True])
def test_exact_tilings_differ_in_the_number_of_programs_and_not_in_where_stretches_begin(has_groups: bool) -> None:
    few, many, short = (
        choose_tiling(rows, context, has_groups, exact=True) for rows, context in ((1, 512), (512, 512), (1, 64))
    )
    assert few[0] == many[0] == short[0] and few.tile == many.tile == short.tile
    assert (few.num_splits, many.num_splits, short.num_splits) == (8, 1, 1)
    assert short == many  # of which there is one kernel


def test_exact_long_contexts_of_some_rows_are_split_where_few_programs_would_walk_them() -> None:
    assert choose_tiling(40, 4096, True, exact=True).num_splits == 64
    assert (
        choose_tiling(40, 512, True, exact=True).num_splits
        == choose_tiling(40, 4096, False, exact=True).num_splits
        == 1
    )


def test_a_tile_of_keys_is_halved_where_shared_memory_does_not_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "shared_memory", lambda: 227 << 10)
    assert [paged.fitting(128, *each) for each in ((128, 2), (64, 4), (256, 2), (128, 4))] == [128, 128, 64, 64]
    monkeypatch.setattr(paged, "shared_memory", lambda: 99 << 10)
    assert [paged.fitting(tile, 128, 2) for tile in (8, 32, 64, 128)] == [8, 32, 64, 64]
