"""A shape as a part of a larger grammar."""

import json
from typing import Any

from llguidance.gbnf_to_lark import gbnf_to_lark

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.lark import either, expression, json_value, literal
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
    return f"%lark {{\n{_lark(structured)}\n}}"


def _lark(structured: Structured) -> str:
    if structured.kind == "structural_tag":
        return tags_grammar(_loaded(structured.source))
    if "::=" not in structured.source:
        return structured.source
    try:
        lark = gbnf_to_lark(structured.source)
    except Exception as error:  # of the library's translator, which raises what it meets
        raise InvalidRequest("structured", f"not a grammar in GBNF: {error}") from error
    return "\n".join(line for line in lark.splitlines() if not line.startswith("%llguidance"))


def _loaded(source: str) -> Any:
    try:
        return json.loads(source)
    except ValueError as error:
        raise InvalidRequest("structured", f"not JSON: {error}") from error
