"""Where slices of sharded tensors belong."""

from pathlib import Path

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.ckpt.slices import Layout, read_layouts, starts
from fakes.ckpt import strategy
from fakes.protobuf import bytes_field, number_field


def test_a_whole_tensor_is_taken_from_the_first_rank_that_has_it() -> None:
    assert starts((4, 2), {1: (4, 2), 2: (4, 2)}, None) == {1: (0, 0)}


def test_slices_along_one_axis_lie_in_the_order_of_ranks() -> None:
    assert starts((4, 6), {0: (4, 2), 2: (4, 2), 5: (4, 2)}, None) == {0: (0, 0), 2: (0, 2), 5: (0, 4)}


def test_a_matrix_of_devices_counts_its_last_axis_fastest() -> None:
    layout = Layout((2, 3), (0, 1))
    assert [layout.place(rank) for rank in (0, 1, 3)] == [((0, 0), (3, 2)), ((1, 0), (3, 2)), ((0, 1), (3, 2))]
    held = dict.fromkeys(range(6), (2, 2))
    assert starts((6, 4), held, layout) == {0: (0, 0), 1: (2, 0), 2: (4, 0), 3: (0, 2), 4: (2, 2), 5: (4, 2)}


def test_ranks_that_have_the_same_slice_count_once() -> None:
    held = dict.fromkeys(range(4), (2, 2))
    assert starts((4, 2), held, Layout((2, 2), (0, -1))) == {0: (0, 0), 1: (2, 0)}


def test_the_optimizer_cuts_the_first_axis_inside_the_models_slices() -> None:
    held = dict.fromkeys(range(4), (1, 2))
    expected = {0: (0, 0), 1: (2, 0), 2: (1, 0), 3: (3, 0)}
    assert starts((4, 2), held, Layout((2, 2), (0, -1), 2, 2)) == expected
    assert starts((4, 2), held, Layout((2, 2), (0, -1), 2, -1)) == expected


@pytest.mark.parametrize(
    ("held", "layout", "complaint"),
    [
        (dict.fromkeys(range(4), (2, 2)), None, r"slices \[2, 2\] in 4 ranks, of \[4, 2\].* put them into strategy/"),
        (dict.fromkeys(range(4), (2, 1)), None, "strategy files alone"),
        (dict.fromkeys(range(2), (2,)), None, "strategy files alone"),
        ({0: (2, 2), 1: (1, 2)}, None, "slices of different shapes"),
        ({0: (2, 2)}, Layout((2,), (0, -1)), "lacks slices: 1 of 2 are here"),
        (dict.fromkeys(range(2), (2, 2)), Layout((3,), (0, -1)), r"cut 3 x 1; the configuration says \[4, 2\]"),
        (dict.fromkeys(range(2), (2, 2)), Layout((2,), (0,)), "the configuration says"),
    ],
)
def test_what_is_not_certain_is_refused(
    held: dict[int, tuple[int, ...]], layout: Layout | None, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        starts((4, 2), held, layout)


def test_strategies_are_read_with_the_names_of_stages_or_without(tmp_path: Path) -> None:
    (tmp_path / "a.ckpt").write_bytes(strategy({"w": ((2, 2), (0, -1), 2, -1), "1-v": ((4,), (-1,), 0, 0)}))
    assert read_layouts([tmp_path / "a.ckpt"]) == {"w": Layout((2, 2), (0, -1), 2, -1), "v": Layout((4,), (-1,))}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (strategy({"w": ((2, 2), (2, -1), 0, 0)}), "does not have"),
        (strategy({"w": ((0,), (0,), 0, 0)}), "impossible matrix"),
        (strategy({"w": ((2**30, 2**30), (0,), 0, 0)}), "impossible matrix"),
        (strategy({"w": ((2,), (0,), 0, 0)}) + strategy({"w": ((4,), (0,), 0, 0)}), "laid out otherwise"),
        (
            bytes_field(3, bytes_field(1, b"w") + bytes_field(2, bytes_field(1, number_field(1, 2)))),
            "several axes of devices at once",
        ),
        (bytes_field(3, b""), "no name"),
        (strategy({"w": ((2,), (0,), 0, 0)})[:-3], "runs past the end"),
    ],
)
def test_a_strategy_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, data: bytes, complaint: str) -> None:
    (tmp_path / "a.ckpt").write_bytes(data)
    with pytest.raises(InvalidConfig, match=complaint):
        read_layouts([tmp_path / "a.ckpt"])
