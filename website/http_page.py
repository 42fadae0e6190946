"""The reference of the HTTP API, from the OpenAPI document of a server with default settings."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from chairlift.config.settings import Settings
from chairlift.server.openapi import document
from tables import Shared, code, plain, table

_INTRO = """\
# HTTP API

Every route of a server but those of its [admin port](../access.md). A server shows the same at `/docs`, and gives it to
programs at `/openapi.json`, with its limits in force. Streams (`"stream": true`) are server-sent events in the shape of
each API. Fields that are not listed are ignored, and the answer names them in `X-Chairlift-Ignored`; some that ask for
what is not there are refused by name ([which](../operating.md#fields)). Guides:
[Anthropic's API](../anthropic-api.md), [structured output](../structured-output.md), [embeddings](../embeddings.md),
[llm-serving's routes](../llm-serving.md), [health and errors](../operating.md).

## Routes
"""
_BODIES = "\n## Bodies\n\nWhat routes take. A field may be left out, or be null, unless it is marked as needed.\n"
_ANSWERS = "\n## Answers\n\nWhat routes answer with, and what bodies and answers are made of.\n"
_INT64 = (-(2**63), 2**63 - 1, 2**64 - 1)


def http_page() -> str:
    described = json.loads(document("", Settings()))
    schemas = described["components"]["schemas"]
    bodies = list(dict.fromkeys(_bodies(described["paths"])))
    others = [name for name in schemas if name not in bodies]
    shared = Shared("")
    return "".join(
        (
            _INTRO,
            "\n" + _routes(described["paths"]),
            _BODIES,
            *(_schema(name, schemas[name], schemas[name].get("required", ()), shared) for name in bodies),
            _ANSWERS,
            *(_schema(name, schemas[name]) for name in others),
        )
    )


def _operations(paths: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _bodies(paths: Mapping[str, Any]) -> Iterator[str]:
    for _, _, operation in _operations(paths):
        if "requestBody" in operation:
            yield _name(operation["requestBody"])


def _routes(paths: Mapping[str, Any]) -> str:
    """A table for each group of routes."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for method, path, operation in _operations(paths):
        answer = operation["responses"]["200"]
        linked = [_link(_name(part)) if _name(part) else "" for part in (operation.get("requestBody", {}), answer)]
        row = (code(f"{method} {path}"), plain(operation["summary"]), *linked)
        groups.setdefault(operation["tags"][0], []).append(row)
    columns = ("route", "does", "takes", "answers")
    return "\n".join(f"### {name}\n\n{table(columns, rows)}" for name, rows in groups.items())


def _name(part: Mapping[str, Any]) -> str:
    """The schema of a body or an answer; none: an empty name."""
    schema = part.get("content", {}).get("application/json", {}).get("schema", {})
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _schema(name: str, schema: Mapping[str, Any], needed: Collection[str] = (), shared: Shared | None = None) -> str:
    about = f"\n{plain(schema['description'])}\n" if "description" in schema else ""
    rows = [
        (code(field), _type(shape) + _default(shape) + (", needed" if field in needed else ""), _meaning(shape))
        for field, shape in schema.get("properties", {}).items()
    ]
    own, others = shared.split(name, rows) if shared else (rows, "")
    return f"\n### {name}\n{about}\n" + table(("field", "type", "meaning"), own) + others


def _meaning(shape: Mapping[str, Any]) -> str:
    return plain(shape.get("description", ""))


def _type(shape: Mapping[str, Any]) -> str:
    """In words, without null: a field that may be null may be left out."""
    if "$ref" in shape:
        return _link(shape["$ref"].rpartition("/")[2])
    if "anyOf" in shape:
        kinds = [_type(each) for each in shape["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds)) + _bounds(shape)
    if "enum" in shape:
        return ", ".join(code(json.dumps(value)) for value in shape["enum"])
    if "const" in shape:
        return code(json.dumps(shape["const"]))
    kind = shape.get("type", "any")
    if kind == "array":
        return f"list of {_type(shape.get('items', {}))}"
    return str(kind) + _bounds(shape)


def _bounds(shape: Mapping[str, Any]) -> str:
    """The range of a number, less what an integer of 64 bits has anyway."""
    found = (shape.get(name) for name in ("minimum", "maximum"))
    least, most = ("" if bound in (None, *_INT64) else f"{bound:g}" for bound in found)
    if least and most:
        return f", {least} to {most}"
    return f", at least {least}" if least else f", at most {most}" if most else ""


def _default(shape: Mapping[str, Any]) -> str:
    default = shape.get("default")
    return "" if default is None else f", default {code(json.dumps(default))}"
