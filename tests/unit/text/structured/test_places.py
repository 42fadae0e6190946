"""Where in a schema a fault lies: found in few trials, and an outer place where time is over."""

from typing import Any

import pytest

from chairlift.text.structured import places
from chairlift.text.structured.grammar import json_schema_fault
from chairlift.text.structured.places import failing_place

NOT = {"not": {"type": "string"}}


def deep(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"type": "object", "properties": {"b": {"type": "string"}, "a": leaf}, "required": ["a"]}
    return leaf


def place_of(schema: Any) -> tuple[str, int]:
    """And the trials that it took."""
    tried = []

    def fault_of(part: Any) -> str:
        tried.append(part)
        return json_schema_fault(part)

    return failing_place(schema, json_schema_fault(schema), fault_of), len(tried)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (NOT, ""),
        (deep(1, {"type": "array", "items": NOT}), "/properties/a/items"),
        (deep(1, {"anyOf": [{"type": "null"}, NOT]}), "/properties/a/anyOf/1"),
        ({"$defs": {"x/y": {"type": "string", "format": "odd"}}, "$ref": "#/$defs/x~1y"}, "/$defs/x~1y"),
        (deep(1, {"oneOf": [{"type": "integer"}, {"type": "number"}]}), "/properties/a"),
        (deep(60, {"type": "string", "pattern": "(?=a)"}), "/properties/a" * 60),
        (deep(1, {"type": "object", "properties": {f"p{i}": {"enum": [i]} for i in range(60)} | {"z": NOT}}),
         "/properties/a/properties/z"),
    ],
)  # fmt: skip
def test_a_fault_is_found_in_few_trials(schema: Any, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_MAX_SECONDS", 60)
    found, num_trials = place_of(schema)
    assert found == place
    assert num_trials < 20


def test_no_trial_begins_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_MAX_SECONDS", -1)
    assert place_of(deep(3, NOT)) == ("", 0)
