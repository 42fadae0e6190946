"""How much work a mask may take: little where a client wrote the rules, more where they are made here."""

import json

import pytest

from chairlift.core.structured import Structured
from chairlift.text.responses.rules.response import response_grammar
from chairlift.text.responses.templates.families import BY_NAME
from chairlift.text.responses.tools.tool import Tool
from chairlift.text.structured.faults import MAX_OPTIONAL
from chairlift.text.structured.grammar import matcher_of
from unit.text.responses.grammars import tokens, vocabulary

AMBIGUOUS = Structured.grammar("start: e\ne: e e | /[a-zA-Z ]/")
TAG = {"type": "tag", "begin": "", "content": {"type": "grammar", "grammar": AMBIGUOUS.source}, "end": ""}
OPTIONAL = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(MAX_OPTIONAL)}}
WRITTEN = '{"p3": "a", "p150": "b"'


def num_masks(structured: Structured, text: str) -> int:
    """Before the text's tokens, until one takes too much work."""
    matcher = matcher_of(structured, vocabulary())
    assert not matcher.is_error(), matcher.get_error()
    for num, token in enumerate(tokens(text, {})):
        matcher.compute_bitmask()
        if matcher.is_error():
            assert "Too many items" in matcher.get_error()
            return num
        assert matcher.consume_token(token)
    return len(tokens(text, {}))


def behind_thoughts(shape: Structured) -> Structured:
    made = response_grammar(BY_NAME["hermes"], (), False, structured=shape, in_reasoning=True)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("structured", "before"),
    [
        (AMBIGUOUS, ""),
        (Structured.structural_tag({"type": "structural_tag", "format": TAG}), ""),
        (behind_thoughts(AMBIGUOUS), "</think>"),
    ],
    ids=["alone", "in a tag", "behind thoughts"],
)
def test_an_ambiguous_grammar_of_a_client_ends_while_its_masks_are_cheap(structured: Structured, before: str) -> None:
    # With five times the items it goes on for a hundred words, and a mask takes a second.
    assert num_masks(structured, before + " a" * 60) < len(tokens(before, {})) + 30


def test_as_many_optional_properties_as_are_allowed_are_held_to_in_shapes_and_calls() -> None:
    made = response_grammar(BY_NAME["hermes"], [Tool("f", OPTIONAL, strict=True)], True)
    assert made is not None
    call = '<tool_call>\n{"name": "f", "arguments": ' + WRITTEN
    shape = Structured.json_schema(OPTIONAL)
    for structured, text in ((shape, WRITTEN), (behind_thoughts(shape), f"</think>{WRITTEN}"), (made, call)):
        assert num_masks(structured, text) == len(tokens(text, {}))


def test_a_long_list_of_alternatives_is_held_to() -> None:
    texts = [f"{number:04} {'word ' * 12}" for number in range(1_500)]
    grammar = Structured.grammar("start: " + " | ".join(map(json.dumps, texts)))
    assert num_masks(grammar, texts[700]) == len(tokens(texts[700], {}))
