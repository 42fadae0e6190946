import pytest

from chairlift.text.structured.source import Kept


def test_texts_are_kept_within_the_bound_and_the_oldest_forgotten_first() -> None:
    made: list[str] = []
    kept = Kept[str, int](lambda text: made.append(text) or len(made), len, most=10)
    assert [kept(text) for text in ("aaaa", "bbbb", "aaaa", "cccc", "aaaa", "bbbb")] == [1, 2, 1, 3, 1, 4]
    assert [kept(text) for text in ("d" * 11, "d" * 11, "aaaa")] == [5, 6, 1]


def test_what_fails_is_tried_again() -> None:
    kept = Kept[str, int](int, len, most=10)
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            kept("x")
    assert kept("7") == 7
