"""A shape as a part of a larger grammar."""

from chairlift.core.structured import Structured
from chairlift.text.structured.lark import either, expression, given, json_value, lark_of, literal
from chairlift.text.structured.source import choices, loaded
from chairlift.text.structured.tags import tags_grammar


def nested(structured: Structured) -> str:
    """Raises `InvalidRequest` for what is not well formed."""
    source = structured.source
    if structured.kind == "json_schema":
        return json_value(loaded(source))
    if structured.kind == "choice":
        return either([literal(text) for text in choices(source)])
    if structured.kind == "regex":
        return expression(source)
    if structured.kind == "structural_tag":
        return f"%lark {{\n{tags_grammar(loaded(source))}\n}}"
    return given(lark_of(source))
