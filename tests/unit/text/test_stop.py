import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.text.stop import StopChecker

STOPS = st.lists(st.text("ab\n", min_size=1, max_size=5), min_size=1, max_size=4)


def run(pieces: list[str], stops: list[str], include: bool = False) -> tuple[str, str | None]:
    checker = StopChecker(stops, include)
    shown = ""
    for piece in pieces:
        text, stop = checker.push(piece)
        shown += text
        if stop is not None:
            assert checker.flush() == ""
            return shown, stop
    return shown + checker.flush(), None


def by_search(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The definition: the first end of a match, the longest match there."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


@given(st.lists(st.text("abc\n", max_size=4), max_size=20), STOPS, st.booleans())
def test_any_cut_of_the_text_gives_what_a_search_of_the_whole_gives(
    pieces: list[str], stops: list[str], include: bool
) -> None:
    assert run(pieces, stops, include) == by_search("".join(pieces), stops, include)


@given(st.text("abc\n", max_size=40), STOPS)
def test_only_text_that_may_become_a_match_is_held_back(text: str, stops: list[str]) -> None:
    checker = StopChecker(stops)
    shown, stop = checker.push(text)
    if stop is None:
        held = text[len(shown) :]
        assert shown + held == text
        assert not held or any(s.startswith(held) and s != held for s in stops)


def test_a_stop_string_over_three_pieces_is_found_and_the_rest_dropped() -> None:
    assert run(["Hi\n", "\nHu", "man: x"], ["\n\nHuman:"]) == ("Hi", "\n\nHuman:")


def test_a_match_that_breaks_off_is_shown() -> None:
    checker = StopChecker(["STOP"])
    assert checker.push("a ST") == ("a ", None)
    assert checker.push("AR") == ("STAR", None)


def test_included_stop_text_is_shown_without_delay() -> None:
    checker = StopChecker(["end"], include=True)
    assert checker.push("the en") == ("the en", None)
    assert checker.push("d of it") == ("d", "end")


def test_nothing_comes_after_a_match() -> None:
    checker = StopChecker(["."])
    assert checker.push("a.b") == ("a", ".")
    assert checker.push("c") == ("", ".")


def test_a_long_run_of_near_matches_costs_linear_time() -> None:
    stop = "a" * 50_000 + "b"
    shown, found = run(["a" * 1000] * 200 + ["b"], [stop])
    assert found == stop and shown == "a" * 150_000


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopChecker([""])
