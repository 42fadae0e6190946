import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.lengths import is_lengths, parse_lengths


def test_lengths_are_fixed_or_drawn_between_two_bounds() -> None:
    items = list(parse_lengths("lengths:prompt=512,output=3-5,count=200", seed=1))
    assert len(items) == 200
    assert {item.prompt_tokens for item in items} == {512}
    assert {item.output_tokens for item in items} == {3, 4, 5}


def test_the_seed_decides() -> None:
    text = "lengths:prompt=1-1000,output=1,count=5"
    assert list(parse_lengths(text, seed=1)) == list(parse_lengths(text, seed=1))
    assert list(parse_lengths(text, seed=1)) != list(parse_lengths(text, seed=2))


def test_a_path_is_not_a_spec() -> None:
    assert is_lengths("lengths:prompt=1")
    assert not is_lengths("lengths.jsonl")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("lengths", "prompt must be a number of tokens, or two as in 16-128, but it is missing"),
        ("lengths:prompt=5-2,output=1,count=1", "prompt must be"),
        ("lengths:prompt=5,output=0,count=1", "output must be"),
        ("lengths:prompt=5,output=1", "count must be a whole number"),
        ("lengths:prompt=5,output=1,count=1,mean=3", "unknown parameter 'mean'; there are: prompt, output, count"),
    ],
)
def test_a_mistake_is_found_before_anything_is_drawn(text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_lengths(text, seed=0)
    assert complaint in str(caught.value)
