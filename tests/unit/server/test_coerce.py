from collections.abc import Callable
from typing import Any

import pytest

from chairlift.server.llm_serving.coerce import Refusal, boolean, integer, mapping, number, text


@pytest.mark.parametrize("value", [True, 1, 1.0, "True", "TRUE", "t", "yes", "Y", "on", "1"])
def test_these_are_true(value: Any) -> None:
    assert boolean(value) is True


@pytest.mark.parametrize("value", [False, 0, 0.0, "False", "false", "F", "no", "n", "OFF", "0"])
def test_these_are_false(value: Any) -> None:
    assert boolean(value) is False


@pytest.mark.parametrize(("value", "expected"), [("3", 3), (5.0, 5), (5.7, 5), (True, 1), (" 4 ", 4), (-2, -2)])
def test_integers_are_read_leniently(value: Any, expected: int) -> None:
    assert integer(value) == expected


@pytest.mark.parametrize(("value", "expected"), [("0.8", 0.8), (1, 1.0), (True, 1.0), ("1e-3", 0.001)])
def test_floats_are_read_leniently(value: Any, expected: float) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(("value", "expected"), [("a", "a"), (3, "3"), (1.5, "1.5"), (True, "True")])
def test_numbers_become_text(value: Any, expected: str) -> None:
    assert text(value) == expected


@pytest.mark.parametrize(("value", "expected"), [({"a": 1}, {"a": 1}), ([], {}), ([["a", 1]], {"a": 1})])
def test_what_can_be_a_dict_is_one(value: Any, expected: dict[str, Any]) -> None:
    assert mapping(value) == expected


@pytest.mark.parametrize(
    ("parse", "value", "kind"),
    [
        (boolean, " True", "type_error.bool"),
        (boolean, "maybe", "type_error.bool"),
        (boolean, 2, "type_error.bool"),
        (boolean, [], "type_error.bool"),
        (integer, "5.0", "type_error.integer"),
        (integer, "x", "type_error.integer"),
        (integer, float("inf"), "type_error.integer"),
        (integer, [], "type_error.integer"),
        (number, "x", "type_error.float"),
        (number, float("nan"), "type_error.float"),
        (number, "inf", "type_error.float"),
        (number, 10**400, "type_error.float"),
        (text, [], "type_error.str"),
        (mapping, 3, "type_error.dict"),
        (mapping, "ab", "type_error.dict"),
    ],
)
def test_what_does_not_fit_is_refused(parse: Callable[[Any], Any], value: Any, kind: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(value)
    assert caught.value.kind == kind
