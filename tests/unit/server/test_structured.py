"""The fields in which bodies ask for a shape, and what is refused."""

from typing import Any

import msgspec
import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.models.spec import SamplingDefaults
from chairlift.server.openai.fields import read
from chairlift.server.openai.params import chat_params, given_params
from chairlift.server.openai.requests import ChatRequest

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}}
HELD = Structured.json_schema(SCHEMA)


def asked(**fields: Any) -> Structured | None:
    body = {"messages": [{"role": "user", "content": "x"}]} | fields
    request, _ = read(msgspec.json.encode(body), ChatRequest)
    return chat_params(request, given_params(request), SamplingDefaults()).structured_outputs


@pytest.mark.parametrize(
    ("fields", "structured"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Structured.json_object()),
        ({"response_format": {"type": "json_object", "schema": {}}}, Structured.json_object()),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, HELD),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
                }
            },
            HELD,
        ),
        ({"structured_outputs": {"json": SCHEMA}}, HELD),
        ({"structured_outputs": {"json_object": True}}, Structured.json_object()),
        ({"structured_outputs": {"regex": "a+", "choice": None}}, Structured.regex("a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Structured.choice(["a", "b"])),
        ({"structured_outputs": {"grammar": "start: A"}}, Structured.grammar("start: A")),
        ({"guided_json": SCHEMA}, HELD),
        ({"guided_json": HELD.source}, HELD),
        ({"guided_regex": "a"}, Structured.regex("a")),
        ({"guided_choice": ["a"]}, Structured.choice(["a"])),
        ({"guided_grammar": "root ::= x"}, Structured.grammar("root ::= x")),
        ({"regex": "a"}, Structured.regex("a")),
        ({"ebnf": "root ::= x"}, Structured.grammar("root ::= x")),
        ({"json_schema": HELD.source}, HELD),
    ],
)
def test_each_dialect_names_its_shape(fields: dict[str, Any], structured: Structured | None) -> None:
    assert asked(**fields) == structured


def test_properties_keep_their_order() -> None:
    assert HELD.source.index('"b"') < HELD.source.index('"a"')


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"regex": "a", "ebnf": "b"}, "ebnf: an answer has one shape, and regex gives one already"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex: an answer has one shape"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice: an answer has one shape"),
        ({"response_format": {"type": "yaml"}}, "response_format.type: must be text, json_object"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema: must be an object"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema: must"),
        ({"response_format": {"type": "json_object", "schema": "a"}}, "response_format.schema: must be a JSON schema"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice: has the wrong type"),
        ({"structured_outputs": {"backend": "x"}}, "structured_outputs.backend: is not supported"),
        ({"regex": 5}, "regex: must be text"),
        ({"regex": "a", "use_beam_search": True, "n": 2}, "regex: is not available in a beam search"),
        ({"regex": "a", "ignore_eos": True}, "ignore_eos: is not available where the answer is held to a shape"),
        ({"regex": "a", "min_tokens": 3}, "min_tokens: is not available"),
    ],
)  # fmt: skip
def test_bad_shapes_name_the_field(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        asked(**fields)
    assert str(refused.value).startswith(said)
