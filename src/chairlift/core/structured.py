"""The shape that an answer is held to, as a request gives it: a kind and its source text.

What the sources mean, and whether an answer can be held to one, is known to `text/structured`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from chairlift.core.errors import InvalidRequest

NO_FURTHER = "the answer cannot be held to its shape any further"  # begins why a runner ends such a request
# "response": a grammar that the server makes of tools, thoughts and one of the others.
Kind = Literal["json_schema", "regex", "choice", "grammar", "structural_tag", "response"]


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
            return value if type(value) is cls else cls(value.kind, value.source)
        if isinstance(value, Mapping) or hasattr(value, "model_json_schema"):
            return cls.json_schema(value)
        wanted = "a JSON schema, a pydantic model or a Structured"
        raise InvalidRequest(
            "structured_outputs", f"must be {wanted}, got {str(value)[:40]!r} ({type(value).__name__})"
        )


class StructuredOutputsParams(Structured):
    """The same by vLLM's names; one of them is to be given."""

    __slots__ = ()

    def __init__(
        self,
        json: Any = None,
        regex: str | None = None,
        choice: Iterable[str] | None = None,
        grammar: str | None = None,
        json_object: bool | None = None,
        structural_tag: Any = None,
    ) -> None:
        shapes: list[tuple[Any, Callable[[Any], Structured]]] = [
            (json, Structured.json_schema),
            (regex, Structured.regex),
            (choice, Structured.choice),
            (grammar, Structured.grammar),
            (json_object or None, lambda _: Structured.json_object()),
            (structural_tag, Structured.structural_tag),
        ]
        given = [make(value) for value, make in shapes if value is not None]
        if len(given) != 1:
            raise InvalidRequest("structured_outputs", f"must name one kind of shape, got {len(given)}")
        super().__init__(given[0].kind, given[0].source)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequest("structured_outputs", f"cannot be written as JSON: {error}") from error
