"""Shapes of answers, and whether a text has one: without the library that holds answers to them."""

import json
import re

from chairlift.core.structured import Structured

_POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": -9, "maximum": 99}, "to": {"enum": ["up", "down", None]}},
    "required": ["x", "to"],
    "additionalProperties": False,
}
POINT = Structured.json_schema(_POINT)
SWITCHES = Structured.json_schema({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4})
CODE = Structured.regex("(ab|c){2,5}d[0-9]{3}")
PHRASE = Structured.choice(["the quick brown fox", "the quick dog", "hello"])
WORDS = Structured.grammar('start: "<" word ("," word)? ">"\nword: /[a-c]{1,4}/')
SHAPES = (POINT, SWITCHES, CODE, PHRASE, WORDS)


def has_shape(structured: Structured, text: str) -> bool:
    if structured == POINT:
        found = json.loads(text)
        return set(found) == {"x", "to"} and -9 <= found["x"] <= 99 and found["to"] in ("up", "down", None)
    if structured == SWITCHES:
        return 2 <= len(json.loads(text)) <= 4 and set(json.loads(text)) <= {True, False}
    if structured == PHRASE:
        return text in json.loads(PHRASE.source)
    return bool(re.fullmatch(CODE.source if structured == CODE else "<[a-c]{1,4}(,[a-c]{1,4})?>", text))
