"""Long texts in pieces: the same tokens as in one, and no text refused that could fit."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers

from chairlift.text.cuts import MAX_PIECE, Cuts, Uncut
from chairlift.text.lengths import DROPPED
from chairlift.text.sentencepiece_model import PieceModel
from chairlift.text.spm import build_spm
from chairlift.text.tokenizer import Tokenizer
from fakes.small_tokenizer import small_tokenizer
from unit.text.vocabularies import LINES, byte_level, piece_list


def spm(adds_prefix_space: bool) -> Tokenizer:
    pieces, scores, types = piece_list()
    model = PieceModel(pieces=pieces, scores=scores, types=types, adds_prefix_space=adds_prefix_space)
    return Tokenizer(build_spm(model))


TOKENIZERS = {
    "small": small_tokenizer(),
    "byte level": Tokenizer(byte_level()),
    "pieces": spm(False),
    "pieces with a space before": spm(True),
}


def cuts_of(tokenizer: Tokenizer) -> Cuts:
    cuts = tokenizer.long_texts.cuts
    assert cuts is not None
    return cuts


def in_pieces(tokenizer: Tokenizer, text: str, size: int) -> list[int]:
    return [token for piece in cuts_of(tokenizer).pieces(text, size) for token in tokenizer.encode(piece, False)]


WORDS, SIGNS = ["the", "hello", "12", "a", "日", "é", "'s"], [" ", "  ", "\n", "\t", ".", ", ", "x\u0301", "\u0301"]
NAMES = st.sampled_from([*TOKENIZERS])
PARTS = st.lists(st.sampled_from([*WORDS, *SIGNS, "<|a|>", "<s>", "<tool>"]))


@given(NAMES, PARTS)
@settings(max_examples=150, deadline=None)
def test_pieces_give_the_tokens_of_the_whole(name: str, parts: list[str]) -> None:
    tokenizer, text = TOKENIZERS[name], "".join(parts)
    for size in (1, 4):
        assert in_pieces(tokenizer, text, size) == tokenizer.encode(text, False)


@given(NAMES, PARTS, PARTS)
@settings(max_examples=150, deadline=None)
def test_what_lies_before_the_last_cut_is_tokenized_without_what_follows(
    name: str, parts: list[str], more: list[str]
) -> None:
    tokenizer, text, behind = TOKENIZERS[name], "".join(parts), "".join(more)
    head, rest = cuts_of(tokenizer).split_last(text)
    begun = tokenizer.encode(head, False) if head else []
    assert begun + tokenizer.encode(rest + behind, False) == tokenizer.encode(text + behind, False)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_text_is_split_near_its_end_wherever_its_last_cut_is(name: str) -> None:
    cuts = cuts_of(TOKENIZERS[name])
    for behind in (3, 3_000):
        head, rest = cuts.split_last("so it goes, " * 9 + "on a" + "€" * behind)
        assert head.startswith("so it goes") and len(rest) <= behind + 5
    assert cuts.split_last("€" * 3_000) == ("", "€" * 3_000)


def test_a_sign_at_the_end_of_a_text_is_no_cut_for_what_follows_may_combine_with_it() -> None:
    assert cuts_of(TOKENIZERS["small"]).split_last("go, on.") == ("go", ", on.")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_text_as_people_write_it_is_cut_often(name: str) -> None:
    text = " ".join(LINES) * 20
    pieces = [*cuts_of(TOKENIZERS[name]).pieces(text, 50)]
    assert len(pieces) > len(text) / 150
    assert in_pieces(TOKENIZERS[name], text, 50) == TOKENIZERS[name].encode(text, False)


def test_what_a_token_reaches_across_is_no_cut() -> None:
    core = byte_level()
    core.add_tokens([AddedToken("see http://", normalized=False)])
    tokenizer, text = Tokenizer(core), "I see http://x, or see http://y"
    assert [*cuts_of(tokenizer).pieces(text, 1)] == ["I see http://x", ", or see http://y"]
    assert in_pieces(tokenizer, text, 1) == tokenizer.encode(text, False)


def test_a_special_token_that_looks_like_a_word_leaves_no_cut_where_spaces_are_left_out() -> None:
    core = build_spm(PieceModel(**dict(zip(("pieces", "scores", "types"), piece_list(), strict=True))))
    core.add_tokens([AddedToken("TOOL", normalized=False)])
    tokenizer = Tokenizer(core)
    assert tokenizer.long_texts.cuts is None


def test_where_pieces_might_differ_there_are_none() -> None:
    lower, words = byte_level(), byte_level()
    lower.normalizer = normalizers.Lowercase()
    words.model = models.WordLevel({"a": 0, "b": 1}, "a")
    for core in (lower, words):
        assert Tokenizer(core).long_texts.cuts is None


def test_a_stretch_without_a_cut_has_a_bound_in_bytes() -> None:
    cuts = cuts_of(small_tokenizer())
    assert [*cuts.pieces("a" * MAX_PIECE)] == ["a" * MAX_PIECE]
    for text in ("a" * (MAX_PIECE + 1), "\u65e5" * (MAX_PIECE // 3 + 1), "a b" + "a" * (MAX_PIECE + 9) + " b"):
        with pytest.raises(Uncut):
            for _ in cuts.pieces(text):
                pass


@given(NAMES, st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_no_text_has_more_characters_than_its_tokens_can_stand_for(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    assert len(text) <= len(tokenizer.encode(text, False)) * tokenizer.long_texts.characters_per_token


def test_the_longest_token_says_how_long_a_text_can_be() -> None:
    tokenizer = small_tokenizer()
    longest = max((tokenizer.piece(token) for token in range(tokenizer.vocab_size)), key=len)
    assert tokenizer.long_texts.characters_per_token == len(longest)
    assert len(tokenizer.encode(longest * 100, False)) == 100


def test_a_tokenizer_that_drops_text_is_given_more() -> None:
    stripping = byte_level()
    stripping.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    assert Tokenizer(stripping).long_texts.characters_per_token == DROPPED


def test_the_embedded_models_own_texts_are_the_same_in_pieces() -> None:
    from chairlift.build import find_model
    from chairlift.config.settings import Settings
    from chairlift.text.find import load_tokenizer

    tokenizer = load_tokenizer(find_model(Settings()).source)
    text = (Path(__file__).parents[2] / "data" / "ropeways.txt").read_text() * 3
    for size in (10, 1000):
        assert in_pieces(tokenizer, text, size) == tokenizer.encode(text, False)


def test_a_normalizer_that_does_nothing_changes_nothing() -> None:
    core = byte_level()
    core.normalizer = normalizers.Sequence([])
    assert Tokenizer(core).long_texts.cuts is not None
