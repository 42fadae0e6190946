"""A shape as a part of a larger grammar."""

import json
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.lark import either, expression, json_value, lark_of, literal
from chairlift.text.structured.tags import tags_grammar


def nested(structured: Structured) -> str:
    """Raises `InvalidRequest` for what is not well formed."""
    source = structured.source
    if structured.kind == "json_schema":
        return json_value(_loaded(source))
    if structured.kind == "choice":
        return either([literal(text) for text in _loaded(source)])
    if structured.kind == "regex":
        return expression(source)
    inner = tags_grammar(_loaded(source)) if structured.kind == "structural_tag" else lark_of(source)
    return f"%lark {{\n{inner}\n}}"


def _loaded(source: str) -> Any:
    try:
        return json.loads(source)
    except ValueError as error:
        raise InvalidRequest("structured", f"not JSON: {error}") from error
