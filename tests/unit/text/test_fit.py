"""Which tokenizers can be a model's."""

from dataclasses import replace

import pytest
from tokenizers import Tokenizer as CoreTokenizer

from chairlift.models.spec import ModelConfig
from chairlift.text.find import why_unfit
from chairlift.text.tokenizer import Tokenizer
from fakes.declarations import random_declaration
from fakes.small_tokenizer import BOS, EOS, small_tokenizer, trained
from unit.text.vocabularies import byte_level

SIZE = small_tokenizer().vocab_size


def model(vocab_size: int = SIZE, bos_id: int | None = 0, eos_ids: tuple[int, ...] = (1,)) -> ModelConfig:
    return replace(random_declaration(0), vocab_size=vocab_size, bos_id=bos_id, eos_ids=eos_ids)


def with_added(num: int) -> Tokenizer:
    core = CoreTokenizer.from_str(trained().to_str())
    core.add_tokens([f"<added {i}>" for i in range(num)])
    return Tokenizer(core, bos_id=core.token_to_id(BOS), eos_id=core.token_to_id(EOS))


@pytest.mark.parametrize("vocab_size", [SIZE, SIZE + 7, round(SIZE / 0.95)])
def test_an_embedding_may_be_padded(vocab_size: int) -> None:
    assert why_unfit(small_tokenizer(), model(vocab_size), None) == ""


@pytest.mark.parametrize("vocab_size", [SIZE - 1, round(SIZE / 0.8)])
def test_other_sizes_are_both_named(vocab_size: int) -> None:
    assert why_unfit(small_tokenizer(), model(vocab_size), None) == f"it has {SIZE} tokens, the model {vocab_size}"


def test_added_tokens_may_lie_beyond_the_embedding_or_fill_it() -> None:
    assert why_unfit(with_added(40), model(SIZE), None) == ""
    assert why_unfit(with_added(40), model(SIZE + 40), None) == ""


def test_texts_must_begin_and_end_as_the_models_do() -> None:
    ends = why_unfit(small_tokenizer(), model(eos_ids=(5, 9)), None)
    assert ends == "its texts end with token 1, the model's with 5, 9"
    assert "begin with token 0, the model's with 3" in why_unfit(small_tokenizer(), model(bos_id=3), None)


def test_what_the_configuration_does_not_say_is_no_difference() -> None:
    assert why_unfit(small_tokenizer(), model(bos_id=None, eos_ids=()), None) == ""
    assert why_unfit(Tokenizer(trained()), model(bos_id=3, eos_ids=(5,)), None) == ""


def test_the_models_own_tokenizer_may_know_another_end_than_its_configuration() -> None:
    assert why_unfit(small_tokenizer(), model(eos_ids=(5,)), small_tokenizer()) == ""


def test_a_vocabulary_of_the_same_size_with_other_tokens_is_found_out() -> None:
    other = Tokenizer(byte_level())
    config = model(vocab_size=round(1.05 * other.vocab_size))
    assert why_unfit(other, config, None) == ""
    assert "spelled as in the model's own tokenizer" in why_unfit(other, config, small_tokenizer())
    assert why_unfit(with_added(3), model(), small_tokenizer()) == ""
