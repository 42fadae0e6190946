"""Calls written and read again by one template."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.text.responses.reading.events import CallArguments, CallBegins
from chairlift.text.responses.reading.reader import ResponseReader
from chairlift.text.responses.templates.families import BY_NAME
from chairlift.text.responses.tools.tool import Tool
from chairlift.text.responses.tools.writer import write_calls
from unit.text.responses.reading.test_reader import joined

CALLING = sorted(name for name, template in BY_NAME.items() if template.can_call)
TOOL = Tool(
    "f",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "whole": {"type": "integer"},
            "is": {"type": "boolean"},
            "list": {"type": "array"},
            "map": {"type": "object"},
            "none": {"type": "null"},
        },
    },
)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 10**20) | _TEXT | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": _TEXT,
        "whole": st.integers(),
        "is": st.booleans(),
        "list": st.lists(_JSON, max_size=3),
        "map": st.dictionaries(_TEXT, _JSON, max_size=3),
        "none": st.none(),
    },
)


def read(family: str, text: str, size: int) -> list[tuple[str, Any]]:
    reader = ResponseReader(BY_NAME[family], tools=(TOOL,))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    events = joined([event for piece in pieces for event in reader.push(piece)] + reader.finish())
    names = [event.name for event in events if isinstance(event, CallBegins)]
    values = [json.loads(event.text) for event in events if isinstance(event, CallArguments)]
    return list(zip(names, values, strict=True))


@given(family=st.sampled_from(CALLING), arguments=_ARGUMENTS, size=st.integers(1, 9))
@settings(max_examples=300, deadline=None)
def test_a_call_is_read_as_it_was_written(family: str, arguments: dict[str, Any], size: int) -> None:
    if any(mark in str(arguments.get("text")) for mark in ("</parameter>", "</arg_value>")):
        return  # which the notation cannot say
    text = write_calls(BY_NAME[family], [("f", arguments)])
    assert read(family, text, size) == [("f", arguments)]


@pytest.mark.parametrize("family", CALLING)
def test_line_breaks_around_a_text_are_its_own(family: str) -> None:
    for text in ("\n", "a\n", "\na", "\n\na\n\n", " a "):
        written = write_calls(BY_NAME[family], [("f", {"text": text})])
        assert read(family, written, 2) == [("f", {"text": text})]


@pytest.mark.parametrize("family", [name for name in CALLING if name not in ("llama3-json", "gpt-oss")])
def test_several_calls_are_read_as_they_were_written(family: str) -> None:
    calls = [("f", {"text": "a"}), ("f", {}), ("f", {"list": [1, {"b": None}]})]
    assert read(family, write_calls(BY_NAME[family], calls), 3) == calls
