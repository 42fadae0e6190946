"""The shape that an answer is held to, as a request gives it: a kind and its source text.

What the sources mean, and whether an answer can be held to one, is known to `text/structured`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from chairlift.core.errors import InvalidRequest

Kind = Literal["json_schema", "regex", "choice", "grammar", "structural_tag"]


@dataclass(frozen=True, slots=True)
class Structured:
    kind: Kind
    source: str  # JSON for a schema, a list of choices and structural tags; else the text of the expression or grammar

    @classmethod
    def json_schema(cls, schema: Any) -> "Structured":
        """Of a schema as a dictionary, as JSON text, or of a pydantic model."""
        if hasattr(schema, "model_json_schema"):
            schema = schema.model_json_schema()
        return cls("json_schema", schema if isinstance(schema, str) else _json(schema))

    @classmethod
    def json_object(cls) -> "Structured":
        """Any JSON object."""
        return cls("json_schema", '{"type":"object"}')

    @classmethod
    def regex(cls, pattern: str) -> "Structured":
        return cls("regex", pattern)

    @classmethod
    def choice(cls, texts: Iterable[str]) -> "Structured":
        return cls("choice", _json(list(texts)))

    @classmethod
    def grammar(cls, text: str) -> "Structured":
        """In Lark, or in GBNF (EBNF with `::=`)."""
        return cls("grammar", text)

    @classmethod
    def structural_tag(cls, tags: Any) -> "Structured":
        """As OpenAI's `response_format` of this type has them."""
        return cls("structural_tag", tags if isinstance(tags, str) else _json(tags))

    @classmethod
    def of(cls, value: object) -> "Structured":
        """A schema may be given as it is."""
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping) or hasattr(value, "model_json_schema"):
            return cls.json_schema(value)
        wanted = "a JSON schema, a pydantic model or a Structured"
        raise InvalidRequest("structured", f"must be {wanted}, got {str(value)[:40]!r} ({type(value).__name__})")


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequest("structured", f"cannot be written as JSON: {error}") from error
