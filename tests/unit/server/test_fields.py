import json

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.server.openai import fields
from chairlift.server.openai.fields import read
from chairlift.server.openai.requests import ChatRequest, CompletionRequest


def refused(body: bytes, kind: type = CompletionRequest) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(body, kind)
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
    request, _ = read(b'{"prompt": "a", "max_tokens": null, "tools": null, "suffix": null}', CompletionRequest)
    assert request.max_tokens is None


@pytest.mark.parametrize(
    "field",
    ['"tools": [{}]', '"tool_choice": "auto"', '"reasoning_effort": "low"', '"suffix": "x"',
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
    read(('{"prompt": "a", ' + field + "}").encode(), CompletionRequest)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"prompt": "a", "frobnicate": 1, "zzz": {}, "metadata": {"a": 1}, "nothing": None}, ["frobnicate", "zzz"]),
        ({"prompt": "a", "stream_options": {"include_usage": True, "x": 1}}, ["stream_options.x"]),
        ({"prompt": ["a", "b"], "logit_bias": {"5": 1}}, []),
    ],
)
def test_unknown_fields_are_ignored_and_named(body: object, names: list[str]) -> None:
    assert read(json.dumps(body).encode(), CompletionRequest)[1] == names


def test_unknown_fields_of_messages_are_named_too() -> None:
    parts = [{"type": "text", "text": "a", "cache_control": {}}]
    messages = [{"role": "user", "content": "a", "refusal": None}, {"role": "user", "content": parts, "thought": "b"}]
    body = json.dumps({"messages": messages, "chat_template_kwargs": {"any": 1}}).encode()
    assert read(body, ChatRequest)[1] == ["messages[].content[].cache_control", "messages[].thought"]


@pytest.mark.parametrize("field", ['"echo": true', '"prompt_embeds": "a"', '"typical_p": 0.5'])
def test_what_another_route_or_server_would_make_of_a_field_is_not_left_out_in_silence(field: str) -> None:
    assert refused(('{"messages": [], ' + field + "}").encode(), ChatRequest).field == field.split('"')[1]


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_a_body_may_nest_to_a_depth_that_all_code_can_take(opened: str, closed: str) -> None:
    def body(depth: int) -> bytes:
        inner = (depth - 1) * opened + "0" + (depth - 1) * closed
        return f'{{"prompt": "{"[" * 300}\\\\", "deep": {inner}, "wide": {[[]] * 300}}}'.encode()

    assert read(body(200), CompletionRequest)[1] == ["deep", "wide"]  # not known
    for depth in (201, 900, 930, 100_000):
        assert (refused(body(depth)).field, "200 levels" in str(refused(body(depth)))) == ("body", True)


def test_a_field_that_seems_misspelt_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields, "_seen", set())  # other tests have filled it
    for _ in range(2):
        read(b'{"prompt": "a", "max_tokns": 5, "x_of_a_proxy": 1}', CompletionRequest)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "a request has the field 'max_tokns', which is ignored (did you mean max_tokens?); further ones are not told"
    ]


def test_hints_are_taken_and_shapes_of_others_refused() -> None:
    assert read(b'{"prompt": "a", "prediction": {"type": "content"}}', CompletionRequest)[1] == []
    with pytest.raises(InvalidRequest, match="format: is not supported"):
        read(b'{"prompt": "a", "format": "json"}', CompletionRequest)
