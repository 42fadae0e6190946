import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.params import SamplingParams
from chairlift.text.stream import TextStream
from chairlift.text.tokenizer import Tokenizer
from unit.text.vocabularies import byte_level

TOKENIZER = Tokenizer(byte_level(), bos_id=0, eos_id=1)


def run(ids: list[int], params: SamplingParams, end_ids: tuple[int, ...] = ()) -> tuple[str, str | None, int]:
    """The text, the stop string, and how many tokens it took."""
    stream = TextStream(TOKENIZER, b"", params, end_ids)
    text = ""
    for count, token in enumerate(ids, 1):
        text += stream.push(token)
        if stream.stop is not None:
            return text + stream.finish(), stream.stop, count
    return text + stream.finish(), None, len(ids)


@given(st.text(), st.sampled_from(["a", "ab", "\n", "😀", "e\u0301"]))
def test_the_text_ends_before_the_first_stop_string(text: str, stop: str) -> None:
    ids = TOKENIZER.encode(text)
    shown, found, _ = run(ids, SamplingParams(stop=(stop,)))
    assert (shown, found) == ((text.split(stop)[0], stop) if stop in text else (text, None))


def test_a_stop_string_ends_the_sample_with_the_token_that_completes_it() -> None:
    head = TOKENIZER.encode("quick fox")
    assert run([*head, *TOKENIZER.encode(" jumps over")], SamplingParams(stop=("fox",))) == ("quick ", "fox", len(head))


def test_a_final_end_token_shows_no_text() -> None:
    ids = [*TOKENIZER.encode("fox"), 1]
    assert run(ids, SamplingParams())[0] == "fox"
    assert run(ids, SamplingParams(skip_special_tokens=False))[0] == "fox<|b|>"


def test_an_end_token_that_the_tokenizer_does_not_know_as_special_shows_no_text() -> None:
    dot = TOKENIZER.encode(".")[0]
    ids = [*TOKENIZER.encode("fox"), dot]
    assert run(ids, SamplingParams(), end_ids=(dot,))[0] == "fox"
    assert run(ids, SamplingParams(skip_special_tokens=False), end_ids=(dot,))[0] == "fox."


@pytest.mark.parametrize(("include", "text"), [(False, "fox"), (True, "fox.")])
def test_a_stop_token_shows_its_text_only_where_stops_are_included(include: bool, text: str) -> None:
    dot = TOKENIZER.encode(".")[0]
    params = SamplingParams(stop_token_ids=(dot,), include_stop_str_in_output=include)
    assert run([*TOKENIZER.encode("fox"), dot], params, end_ids=(1, dot))[0] == text


def test_text_of_the_least_tokens_is_not_searched() -> None:
    ids = TOKENIZER.encode("xyxyx")
    assert len(ids) == 5
    assert run(ids, SamplingParams(stop=("x",), min_tokens=2)) == ("xy", "x", 3)


def test_held_back_text_comes_out_when_the_sample_ends() -> None:
    assert run(TOKENIZER.encode("quick fo"), SamplingParams(stop=("fox",)))[0] == "quick fo"
    half = TOKENIZER.encode("😀")[:1]
    assert run(half, SamplingParams())[0] == "\ufffd"
