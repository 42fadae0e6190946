"""Faults of a schema that the grammar library takes."""

from typing import Any

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.text.responses.rules.schemas import schema_of
from chairlift.text.responses.tools.tool import Tool
from chairlift.text.structured.faults import own_faults
from chairlift.text.structured.grammar import json_schema_fault
from chairlift.text.structured.source import MAX_CHARACTERS

ITSELF = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
EXACT = 2**53


def test_large_whole_numbers_cannot_be_held_to() -> None:
    schema = {"properties": {"a": {"enum": [1, [EXACT]]}, "b": {"const": {"id": -EXACT - 1}}}}
    assert [place for place, _ in own_faults(schema)] == ["/properties/b"]
    assert json_schema_fault({"const": EXACT}) == ""
    assert "give larger ones as text" in json_schema_fault({"const": EXACT + 1})


def test_properties_that_may_be_left_out_are_counted() -> None:
    many: dict[str, Any] = {f"p{i}": {} for i in range(201)}
    assert "201 properties may be left out" in json_schema_fault({"properties": many})
    assert json_schema_fault({"properties": many, "required": ["p0"]}) == ""


def tool(strict: bool | None) -> Tool:
    return Tool("walk", ITSELF, strict=strict, index=3)


def test_a_strict_tool_that_needs_itself_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidRequest, match=r"tools\[3\].function.parameters: at /properties/a: has no finite answer"):
        schema_of(tool(strict=True))
    assert schema_of(tool(strict=None)) == {"type": "object"}


def test_a_long_schema_of_a_tool_is_not_read() -> None:
    long = ITSELF | {"const": "a" * MAX_CHARACTERS}
    with pytest.raises(InvalidRequest, match=r"tools\[3\].function.parameters: at /: must have at most"):
        schema_of(Tool("walk", long, strict=True, index=3))
