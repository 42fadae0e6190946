"""Texts as inputs: the tokens around them, and what is cut."""

from pathlib import Path

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.models.embedding.declared import EmbeddingConfig
from chairlift.text.embedding.framing import Framing
from chairlift.text.embedding.texts import EmbeddingTexts
from chairlift.text.folder import folder_tokenizer
from fakes.encoders import write_word_tokenizer

CLS, SEP = 1, 2


@pytest.fixture
def texts(tmp_path: Path) -> EmbeddingTexts:
    write_word_tokenizer(tmp_path)
    config = EmbeddingConfig(task="embed", max_len=8, prompts=(("query", "find: "),), is_lower_case=True)
    return EmbeddingTexts.of(folder_tokenizer(tmp_path), config)


def test_a_text_and_a_pair_are_framed_as_the_tokenizer_does(texts: EmbeddingTexts) -> None:
    assert texts.single([7, 8], 8, None, "input").tokens == [CLS, 7, 8, SEP]
    assert texts.pair([7, 8], [9], 8, None, "documents") == ([CLS, 7, 8, SEP, 9, SEP], 4)


def test_a_long_text_is_refused_with_its_limit_and_the_way_out(texts: EmbeddingTexts) -> None:
    with pytest.raises(
        InvalidRequest, match="input: .* is 8 tokens; 9 tokens are too many .* set truncate_prompt_tokens to -1"
    ):
        texts.single([7] * 7, 8, None, "input")
    with pytest.raises(InvalidRequest, match="truncate_prompt_tokens: must be 1 to 8, or -1"):
        texts.single([7], 8, 9, "input")


def test_a_long_text_is_cut_at_its_end_and_keeps_its_frame(texts: EmbeddingTexts) -> None:
    assert texts.single([3, 4, 5, 6, 7, 8, 9], 8, -1, "input").tokens == [CLS, 3, 4, 5, 6, 7, 8, SEP]
    assert texts.single([3, 4, 5, 6], 8, 4, "input").tokens == [CLS, 3, 4, SEP]


@pytest.mark.parametrize(("lengths", "kept"), [((1, 9), (1, 4)), ((9, 1), (4, 1)), ((9, 9), (2, 3)), ((2, 3), (2, 3))])
def test_the_longer_text_of_a_pair_is_cut(lengths: tuple[int, int], kept: tuple[int, int]) -> None:
    framing = Framing((), (), between=(SEP,), pair_before=(CLS,), pair_after=(SEP,), num_first=1)
    ids, second_at = framing.pair([5] * lengths[0], [6] * lengths[1], 8)
    assert (ids.count(5), ids.count(6)) == kept
    assert second_at == kept[0] + 2


def test_prompts_go_before_texts_by_name_and_others_are_refused(texts: EmbeddingTexts) -> None:
    assert texts.prompted("The Lift", "query") == "find: the lift"
    assert texts.as_query("x") == "find: x" and texts.as_document("x") == "x"
    with pytest.raises(InvalidRequest, match="prompt_name: must be one of query, got 'passage'"):
        texts.prompted("x", "passage")
