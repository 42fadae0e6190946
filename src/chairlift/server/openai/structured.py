"""The shape that a body asks its answer to have, in the fields of OpenAI, vLLM and SGLang.

Always: a body names one shape at the most; an error names the field that holds it and the place inside.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec

from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.core.structured import Structured
from chairlift.server.admission.cost import Cost
from chairlift.server.context import ServerContext
from chairlift.server.openai.fields import Body


class StructuredFields(Body, frozen=True, kw_only=True):
    """response_format is OpenAI's, structured_outputs and guided_* are vLLM's, the others SGLang's."""

    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    json_schema: dict[str, Any] | str | None = None
    regex: str | None = None
    ebnf: str | None = None


class Shape(NamedTuple):
    field: str  # of the body, that holds it
    structured: Structured


Maker = Callable[[Any], Structured]
_MAKERS: dict[str, Maker] = {
    "guided_json": Structured.json_schema, "guided_regex": Structured.regex, "guided_choice": Structured.choice,
    "guided_grammar": Structured.grammar, "json_schema": Structured.json_schema, "regex": Structured.regex,
    "ebnf": Structured.grammar,
}  # fmt: skip
# What structured_outputs may hold: the type of its value, and what is made of it.
_OUTPUTS: dict[str, tuple[Any, Maker]] = {
    "json": (dict[str, Any] | str, Structured.json_schema),
    "regex": (str, Structured.regex),
    "choice": (list[str], Structured.choice),
    "grammar": (str, Structured.grammar),
    "structural_tag": (dict[str, Any] | str, Structured.structural_tag),
}


def shape_of(request: StructuredFields) -> Shape | None:
    shapes = [shape for shape in _shapes(request) if shape is not None]
    if len(shapes) > 1:
        raise InvalidRequest(shapes[1].field, f"an answer has one shape, and {shapes[0].field} gives one already")
    return shapes[0] if shapes else None


@contextmanager
def naming_shape(request: StructuredFields) -> Iterator[None]:
    """Errors inside name the field that holds the shape."""
    try:
        yield
    except InvalidRequest as error:
        shape = shape_of(request) if error.field == "structured_outputs" else None
        if shape is None:
            raise
        raise InvalidRequest(shape.field, error.message) from error


async def check_shape(
    context: ServerContext,
    request: StructuredFields,
    params: SamplingParams,
    cost: Cost,
    default_tokens: int | None = None,
) -> None:
    """Raises `InvalidRequest` for a shape that no answer can be held to, or none of `max_tokens`. `default_tokens`:
    the most where the request does not say."""
    if params.structured_outputs is not None:
        most = default_tokens if params.max_tokens is None else params.max_tokens
        cost.num_characters += len(params.structured_outputs.source)
        with naming_shape(request):
            await context.shapes.do(partial(context.structured.check, params.structured_outputs, most), cost)


async def with_banned(context: ServerContext, params: SamplingParams, cost: Cost) -> SamplingParams:
    """With the tokens of the bad words."""
    if not params.bad_words:
        return params
    cost.num_characters += sum(map(len, params.bad_words))
    encode = partial(context.tokenizer.encode, add_special=False)
    return await context.shapes.do(partial(params.banning, encode), cost)


def _shapes(request: StructuredFields) -> Iterator[Shape | None]:
    if request.response_format is not None:
        yield _of_format(request.response_format)
    if request.structured_outputs is not None:
        yield from _of_outputs(request.structured_outputs)
    for name, make in _MAKERS.items():
        if (value := getattr(request, name)) is not None:
            yield _made(name, make, value)


def _of_format(wanted: dict[str, Any]) -> Shape | None:
    match wanted.get("type"):
        case "text":
            return None
        case "json_object" if wanted.get("schema") not in (None, {}):  # llama.cpp's form
            return _made("response_format.schema", Structured.json_schema, _object(wanted, "response_format.schema"))
        case "json_object":
            return Shape("response_format", Structured.json_object())
        case "json_schema":
            return _made("response_format.json_schema.schema", Structured.json_schema, _schema(wanted))
        case "structural_tag":
            return _made("response_format", Structured.structural_tag, wanted)
        case other:
            kinds = "text, json_object, json_schema or structural_tag"
            raise InvalidRequest("response_format.type", f"must be {kinds}, got {str(other)[:40]!r}")


def _schema(wanted: dict[str, Any]) -> Any:
    named = wanted.get("json_schema")
    if not isinstance(named, dict):
        raise InvalidRequest("response_format.json_schema", "must be an object with a name and a schema")
    return _object(named, "response_format.json_schema.schema")


def _object(holder: dict[str, Any], field: str) -> dict[str, Any]:
    schema = holder.get("schema")
    if not isinstance(schema, dict):
        raise InvalidRequest(field, "must be a JSON schema, which is an object")
    return schema


def _of_outputs(wanted: dict[str, Any]) -> Iterator[Shape]:
    for name, value in wanted.items():
        field = f"structured_outputs.{name}"
        if name == "json_object" and value is True:
            yield Shape(field, Structured.json_object())
        elif name in _OUTPUTS and value is not None:
            kind, make = _OUTPUTS[name]
            try:
                yield _made(field, make, msgspec.convert(value, kind))
            except msgspec.ValidationError as error:
                raise InvalidRequest(field, f"has the wrong type: {error}") from error
        elif value:
            raise InvalidRequest(field, f"is not supported by this server; use one of {', '.join(_OUTPUTS)}")


def _made(field: str, make: Maker, value: Any) -> Shape:
    try:
        return Shape(field, make(value))
    except InvalidRequest as error:
        raise InvalidRequest(field, error.message) from error
