"""Shapes that are refused before anything is queued, with the place of the fault."""

import json
from functools import lru_cache
from typing import Any

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.checker import StructuredChecker
from chairlift.text.structured.source import MAX_CHARACTERS
from fakes.small_tokenizer import EOS, small_tokenizer

ITSELF = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}


@lru_cache(maxsize=1)
def checker() -> StructuredChecker:
    tokenizer = small_tokenizer()
    assert tokenizer.eos_id is not None
    return StructuredChecker(tokenizer, tokenizer.vocab_size, (tokenizer.eos_id,))


def refusal(structured: Structured, max_tokens: int | None = None) -> str:
    with pytest.raises(InvalidRequest) as refused:
        checker().check(structured, max_tokens)
    return str(refused.value)


def within(schema: Any) -> dict[str, Any]:
    """The schema below many others, where it has to be found."""
    others: dict[str, Any] = {f"p{i}": {"type": "string"} for i in range(60)}
    return {
        "type": "object",
        "properties": others | {"a/b": {"type": "array", "items": {"anyOf": [{"type": "null"}, schema]}}},
    }


@pytest.mark.parametrize(
    "schema",
    [{"not": {}}, {"type": "array", "uniqueItems": True}, {"type": "string", "format": "klingon"}, {"type": "strin"},
     {"type": "string", "pattern": "(?=a)b"}, {"if": {}, "then": {}}],
    ids=json.dumps,
)  # fmt: skip
def test_a_keyword_that_cannot_be_held_to_is_refused_with_its_place(schema: Any) -> None:
    assert refusal(Structured.json_schema(within(schema))).startswith(
        "structured_outputs: at /properties/a~1b/items/anyOf/1"
    )
    assert refusal(Structured.json_schema(schema)).startswith("structured_outputs: at /:")


@pytest.mark.parametrize(
    ("structured", "said"),
    [
        (Structured.regex("(a"), "regex parse error: unclosed group"),
        (
            Structured.grammar('start: "b" /(a/'),
            'at 1(8): invalid regex "(a" (in regex): regex parse error: unclosed group',
        ),
        (Structured.json_schema({"pattern": "(a"}), "at /: regex parse error: unclosed group"),
        (Structured.grammar("start: a b"), 'at 1(8): unknown name: "a"'),
    ],
)
def test_a_refusal_is_one_line(structured: Structured, said: str) -> None:
    assert refusal(structured) == f"structured_outputs: {said}"


@pytest.mark.parametrize(
    ("structured", "said"),
    [
        (Structured.json_schema("{"), "not JSON"),
        (Structured.json_schema("[1]"), "not a JSON schema"),
        (Structured.json_schema("[" * 5000), "nested more than 200 levels"),
        (Structured.json_schema('{"const": NaN}'), "not JSON"),
        (Structured.json_schema({"$ref": "#/definitions/none"}), "does not exist"),
        (Structured.json_schema({"enum": ["x" * MAX_CHARACTERS]}), "must have at most"),
        (Structured.json_schema(ITSELF), "at /properties/a: has no finite answer"),
        (Structured.json_schema({"type": "integer", "minimum": 5, "maximum": 3}), "at /: Unsatisfiable"),
        (
            Structured.json_schema({"properties": {"a": {"properties": {f"p{i}": {} for i in range(201)}}}}),
            "at /properties/a: 201 properties may be left out",
        ),
        (
            Structured.json_schema(
                {
                    "$ref": "#/$defs/a",
                    "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
                }
            ),
            "no text has this shape",
        ),
        (Structured.grammar("start: a\na: a a"), "needs itself"),
        (Structured.grammar("root ::= root"), "needs itself"),
        (Structured.grammar('start: a\na: "x" a'), "needs itself"),
        (Structured.grammar(f'start: {EOS} a\na: "x" a'), "needs itself"),
        (Structured.structural_tag({"format": {"type": "json_schema", "json_schema": ITSELF}}), "needs itself"),
        (Structured.regex(r"a[^\x00-\U0010ffff]"), "no text has this shape"),
        (Structured.regex("(a"), "unclosed group"),
        (Structured.choice([]), "choices must be"),
        (Structured.choice(["a", ""]), "choices must be"),
        (Structured.grammar('start: "a" x'), "unknown name"),
        (Structured.grammar('root ::= "a" [0-9'), "GBNF"),
        (Structured.grammar('start: <|nonsense|> "a"'), "unknown special token"),
        (Structured("choice", "5"), "choices must be"),
        (Structured("choice", "["), "not JSON"),
        (Structured.structural_tag({"type": "structural_tag"}), "structured_outputs:"),
        (Structured.structural_tag("[" * 5000), "nested more than 200 levels"),
    ],
)
def test_what_is_no_shape_is_refused(structured: Structured, said: str) -> None:
    assert said in refusal(structured)


@pytest.mark.parametrize(
    "structured",
    [
        Structured.json_object(),
        Structured.json_schema({}),
        Structured.json_schema("true"),
        Structured.json_schema({"type": "integer", "maximum": 10**20}),
        Structured.json_schema({"type": "object", "properties": {"next": {"$ref": "#"}}}),
        Structured.choice(["a|b", "<c>", 'd"\n', "é"]),
        Structured.grammar('root ::= "a" [0-9]+'),
        Structured.grammar(f"start: {EOS}"),
    ],
)
def test_shapes_that_answers_can_be_held_to(structured: Structured) -> None:
    checker().check(structured, None)


def test_max_tokens_below_the_shortest_answer_are_refused() -> None:
    wanted = Structured.choice(["the quick brown fox jumps over the lazy dog" * 3])
    assert refusal(wanted, 3).startswith("max_tokens: 3 is too few: the shortest answer of this shape takes about ")
    checker().check(wanted, 200)


def test_a_model_without_an_end_token_cannot_hold_to_shapes() -> None:
    with pytest.raises(InvalidRequest, match="no end token"):
        StructuredChecker(small_tokenizer(), 330, ()).check(Structured.json_object(), None)
