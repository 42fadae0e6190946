import pytest

from chairlift.cli.inputs.tokenizer import tokenizer_at
from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.prompts import TextPrompts
from fakes.word_encoder import encode


def count(text: str) -> int:
    return len(encode(text))


def test_a_text_has_the_asked_number_of_tokens_and_is_the_same_in_every_run() -> None:
    item = Item(prompt_tokens=50, output_tokens=1)
    text = TextPrompts(3, count).text(item, 7)
    assert count(text) == 50
    assert text == TextPrompts(3, count).text(item, 7)
    assert len({TextPrompts(seed, count).text(item, index) for seed in range(3) for index in range(3)}) == 9


def test_equal_hash_ids_give_equal_prefixes() -> None:
    words = TextPrompts(0, count)
    one, two = (
        words.text(Item(prompt_tokens=40, output_tokens=1, hash_ids=ids, hash_block=16), 0).split()
        for ids in ((1, 2, 3), (1, 2, 4))
    )
    assert one[:32] == two[:32]
    assert one[32:] != two[32:]


def test_the_embedded_tokenizer_counts_what_was_asked_for() -> None:
    tokenizer = tokenizer_at(None)
    words = TextPrompts(0, lambda text: len(tokenizer.encode(text, add_special=False)))
    for length in (1, 2, 19, 512):
        text = words.text(Item(prompt_tokens=length, output_tokens=1), length)
        assert len(tokenizer.encode(text, add_special=False)) == length


def test_a_tokenizer_that_splits_every_word_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="too few words"):
        TextPrompts(0, len)
