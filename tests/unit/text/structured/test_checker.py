from typing import Any

import pytest
from llguidance import LLMatcher

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.checker import StructuredChecker
from chairlift.text.structured.grammar import json_schema_fault
from fakes.small_tokenizer import small_tokenizer

NO_END = {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}}}


def checker() -> StructuredChecker:
    tokenizer = small_tokenizer()
    return StructuredChecker(tokenizer, tokenizer.vocab_size, [tokenizer.eos_id or 0])


def refused(shape: Structured, max_tokens: int | None = None) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        checker().check(shape, max_tokens)
    return caught.value


@pytest.mark.parametrize(
    ("shape", "fewest"),
    [
        (Structured.regex("[xyz]{12}"), 12),
        (Structured.choice(["zzzzzzzz", "yyyyyyyyyy"]), 8),
        (Structured.json_schema({"const": "xxxxxxxx"}), 10),
        (Structured.choice(["The quick brown fox jumps over the lazy dog."]), 10),  # words are tokens
    ],
)
def test_too_few_tokens_for_the_shortest_answer_are_refused(shape: Structured, fewest: int) -> None:
    error = refused(shape, fewest - 3)
    assert error.field == "max_tokens"
    assert f"takes about {fewest} tokens" in error.message
    checker().check(shape, fewest - 2)  # another text may need fewer
    checker().check(shape)


def test_a_grammar_whose_shortest_text_is_not_known_is_taken() -> None:
    checker().check(Structured.grammar('start: "a long text, which takes many tokens"'), 1)


def test_a_schema_without_a_finite_answer_is_refused_with_its_place() -> None:
    error = refused(Structured.json_schema(NO_END | {"$ref": "#/$defs/n"}))
    assert error.field == "structured_outputs"
    assert "needs itself" in error.message


class PanicException(BaseException):
    """Of a library in Rust, which a broken one raises."""


def test_a_schema_that_the_library_fails_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: object, **__: object) -> None:
        raise PanicException("not a char boundary\nmore")

    monkeypatch.setattr(LLMatcher, "validate_grammar_with_warnings", panic)
    error = refused(Structured.json_schema({"type": "integer"}))
    assert str(error) == "structured_outputs: at /: the grammar library failed: not a char boundary"


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"a": schema}}
    assert "nested more than 200 levels deep" in refused(Structured.json_schema(schema)).message
    assert "nested more than 200 levels deep" in json_schema_fault(schema)
