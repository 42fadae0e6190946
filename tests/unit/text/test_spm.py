from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import InvalidConfig
from chairlift.text.sentencepiece_model import USER_DEFINED, PieceModel
from chairlift.text.spm import build_spm
from chairlift.text.tokenizer import Tokenizer
from unit.text.vocabularies import SPACE, piece_list


def model(**changes: object) -> PieceModel:
    pieces, scores, types = piece_list()
    return PieceModel(**({"pieces": pieces, "scores": scores, "types": types} | changes))


TOKENIZER = build_spm(model())


def joined_by_score(text: str) -> list[str]:
    """The definition: join the leftmost neighbours with the best joined score until none joins."""
    pieces, scores, _ = piece_list()
    score_of = dict(zip(pieces[259:], scores[259:], strict=True))
    symbols = list((SPACE + text).replace(" ", SPACE)) if text else []
    while True:
        joins = [(-score_of[a + b], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in score_of]
        if not joins:
            break
        at = min(joins)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [byte for s in symbols for byte in ([s] if s in score_of else [f"<0x{b:02X}>" for b in s.encode()])]


@given(st.text(alphabet="abehilnogt  é日😀\n", max_size=40))
def test_tokens_are_those_of_joining_by_score(text: str) -> None:
    assert TOKENIZER.encode(text).tokens == joined_by_score(text)


def test_a_word_is_joined_best_score_first() -> None:
    assert TOKENIZER.encode("the hello").tokens == [f"{SPACE}the", SPACE, "hello"]


def test_a_character_without_a_piece_becomes_its_bytes() -> None:
    assert TOKENIZER.encode("😀").tokens == [SPACE, "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]


def test_control_pieces_are_special_and_split_the_text() -> None:
    assert TOKENIZER.encode("<s>the").ids[0] == 1


def test_without_a_prefix_space_none_is_added_or_dropped() -> None:
    tokenizer = Tokenizer(build_spm(model(adds_prefix_space=False)))
    assert tokenizer.decode(tokenizer.encode(" the")) == " the"
    assert tokenizer.piece(tokenizer.encode("the")[0]) == "t"


def test_a_user_defined_piece_is_never_split_and_not_special() -> None:
    pieces, scores, types = piece_list()
    core = build_spm(model(pieces=[*pieces, "<tool>"], scores=[*scores, 0.0], types=[*types, USER_DEFINED]))
    assert core.encode("a<tool>a").ids[1] == len(pieces)
    assert Tokenizer(core).special_ids == {0, 1, 2}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"pieces": ["a", "a"], "scores": [0.0, 0.0], "types": [1, 2]}, "twice"),
        ({"pieces": ["a", ""], "scores": [0.0, 0.0], "types": [2, 1]}, "empty"),
        ({"pieces": ["a"], "scores": [float("nan")], "types": [2]}, "not a number"),
        ({"pieces": ["a"], "scores": [], "types": [2]}, "unequal"),
        ({"pieces": ["a"], "scores": [0.0], "types": [9]}, "unknown type 9"),
        ({"pieces": ["a"], "scores": [0.0], "types": [1]}, "neither"),
        ({"pieces": ["u", "a" * 5000], "scores": [0.0, 0.0], "types": [2, 1]}, "5000 characters"),
    ],
)
def test_a_broken_vocabulary_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        build_spm(model(**change))
