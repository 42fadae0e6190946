"""Equal parts of a schema are written once, and the answers that it allows stay the same."""

import random
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from chairlift.text.structured.grammar import LIMITS
from chairlift.text.structured.lark import JSON_OPTIONS
from chairlift.text.structured.shared import with_shared_parts

DATE = {"type": "string", "format": "date-time"}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
_PARTS: list[dict[str, Any]] = [
    DATE, POINT, {"type": "string", "maxLength": 3, "minLength": 1}, {"type": ["integer", "null"], "maximum": 30},
    {"type": "array", "items": POINT, "maxItems": 2}, {"anyOf": [POINT, {"type": "boolean"}]},
    {"oneOf": [{"type": "boolean"}, {"enum": ["one", "two", "three"]}]}, {"$ref": "#/$defs/tree"},
]  # fmt: skip
TREE = {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}, "additionalProperties": False}


def test_equal_parts_become_references() -> None:
    schema = {"type": "object", "properties": {"a": DATE, "b": DATE, "id": {"const": {"$ref": "x"}}}, "required": ["a"]}
    made = with_shared_parts(schema)
    assert made["properties"] == {
        "a": {"$ref": "#/$defs/shared-0"}, "b": {"$ref": "#/$defs/shared-0"}, "id": {"const": {"$ref": "x"}}
    }  # fmt: skip
    assert made["$defs"] == {"shared-0": DATE}
    assert made["required"] == ["a"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"properties": {"a": DATE, "b": {"type": "null"}}},
        {"allOf": [{"properties": {"a": DATE, "b": DATE}}]},
        {"properties": {"a": DATE, "b": DATE}, "$id": "http://x/y"},
        {"properties": {"a": DATE, "b": DATE}, "$defs": {"shared-0": True}},
        {"properties": [DATE, DATE]},
        {"properties": {"a": POINT, "b": POINT, "c": {"$ref": "#/properties/a/properties/x"}}},
    ],
)
def test_nothing_is_changed_where_nothing_is_gained_or_references_may_fail(schema: Any) -> None:
    assert with_shared_parts(schema) == schema


def random_schema(rng: random.Random) -> dict[str, Any]:
    properties = {f"field_{i}": rng.choice(_PARTS) for i in range(rng.randint(3, 8))}
    return {
        "$defs": {"tree": TREE},
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if rng.random() < 0.8],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("seed", range(20))
def test_every_mask_stays_the_same(seed: int) -> None:
    rng = random.Random(seed)
    schema = random_schema(rng)
    vocabulary = LLTokenizer("byte")
    words = np.zeros((2, -(-vocabulary.vocab_size // 32)), np.int32)
    matchers = [
        LLMatcher(vocabulary, LLMatcher.grammar_from_json_schema(each, overrides=JSON_OPTIONS), limits=LIMITS)
        for each in (schema, with_shared_parts(schema))
    ]
    for _ in range(300):
        for matcher, row in zip(matchers, words, strict=True):
            assert not matcher.is_error(), matcher.get_error()
            matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        assert np.array_equal(words[0], words[1])
        token = int(rng.choice(np.flatnonzero(np.unpackbits(words[0].view(np.uint8), bitorder="little"))))
        if not min(matcher.consume_tokens([token]) for matcher in matchers) or matchers[0].is_stopped():
            break
