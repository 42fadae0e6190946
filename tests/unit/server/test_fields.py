import logging

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.server.openai.fields import read
from chairlift.server.openai.requests import ChatRequest, CompletionRequest


def refused(body: bytes, kind: type = CompletionRequest) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(body, kind, "r")
    return caught.value


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b'{"prompt": "\xff"}', b'{"prompt": NaN}', b'{"prompt": "\\ud800"}', b"[" * 100_000, b"{}{}"],
)
def test_a_body_that_is_not_json_is_refused(body: bytes) -> None:
    assert refused(body).field == "body"


def test_a_body_that_is_not_an_object_is_refused() -> None:
    assert refused(b"[1]").field == "body"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"prompt": 5}', "prompt"),
        (b'{"prompt": [1.5]}', "prompt[0]"),
        (b'{"prompt": "a", "max_tokens": "5"}', "max_tokens"),
        (b'{"prompt": "a", "max_tokens": true}', "max_tokens"),
        (b'{"prompt": "a", "temperature": "hot"}', "temperature"),
        (b'{"prompt": "a", "temperature": 1e999}', "temperature"),
        (b'{"prompt": "a", "priority": 99999999999999999999999}', "priority"),
        (b'{"prompt": "a", "stream": 1}', "stream"),
        (b'{"prompt": "a", "stop": [1]}', "stop[0]"),
        (b'{"prompt": "a", "stream_options": {"include_usage": 3}}', "stream_options.include_usage"),
        (b'{"max_tokens": 5}', "prompt"),
        (b'{"prompt": null}', "prompt"),
    ],
)
def test_a_wrong_type_names_its_field(body: bytes, field: str) -> None:
    assert refused(body).field == field


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "body: is empty; send a JSON object"),
        (b" \n", "body: is empty; send a JSON object"),
        (b'{"prompt": "a", "temperature": "hot"}', "temperature: must be a number, got text"),
        (b'{"prompt": "a", "max_tokens": 1.5}', "max_tokens: must be a whole number, got a fraction"),
        (b'{"prompt": "a", "stream": 1}', "stream: must be true or false, got a whole number"),
        (b'{"prompt": "a", "stop": {}}', "stop: must be text or a list, got an object"),
        (b'{"prompt": [null]}', "prompt[0]: must be a whole number or text or a list, got null"),
        (b'{"prompt": "a", "priority": 9999999999999999999}', "priority: must be a whole number of at most 64 bits"),
    ],
)
def test_a_refusal_speaks_of_json_not_of_python(body: bytes, complaint: str) -> None:
    assert str(refused(body)) == complaint


def test_a_missing_field_of_a_message_is_named_with_its_place() -> None:
    assert refused(b'{"messages": [{"content": "a"}]}', ChatRequest).field == "messages[0].role"


def test_null_is_as_absent() -> None:
    request = read(b'{"prompt": "a", "max_tokens": null, "tools": null, "suffix": null}', CompletionRequest, "r")
    assert request.max_tokens is None


@pytest.mark.parametrize(
    "field",
    ['"tools": [{}]', '"tool_choice": "auto"', '"response_format": {"type": "json_object"}', '"suffix": "x"',
     '"modalities": ["audio"]', '"early_stopping": "never"', '"audio": {"voice": "a"}', '"functions": [{}]'],
)  # fmt: skip
def test_a_known_field_that_is_not_built_is_refused_by_name(field: str) -> None:
    error = refused(('{"prompt": "a", ' + field + "}").encode())
    assert error.field == field.split('"')[1]
    assert error.field in str(error)


@pytest.mark.parametrize(
    "field",
    ['"tools": []', '"tool_choice": "none"', '"response_format": {"type": "text"}', '"suffix": ""',
     '"modalities": ["text"]', '"early_stopping": true', '"store": false'],
)  # fmt: skip
def test_a_value_that_asks_for_nothing_is_taken(field: str) -> None:
    read(('{"prompt": "a", ' + field + "}").encode(), CompletionRequest, "r")


def test_unknown_fields_are_ignored_with_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    read(b'{"prompt": "a", "frobnicate": 1, "zzz": {}}', CompletionRequest, "req-7")
    assert [r.getMessage() for r in caplog.records] == ["request req-7: ignored unknown fields 'frobnicate', 'zzz'"]
