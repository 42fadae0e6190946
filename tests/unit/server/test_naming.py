"""Fields are named as the client's body has them."""

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.server.naming import naming, through

NAMES = {"messages": "input", "messages[2]": "input[4]", "messages[2].tool_calls[0].function": "input[5]", "n": "m"}


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("messages", "input"),
        ("messages[1].role", "input[1].role"),
        ("messages[2].role", "input[4].role"),
        ("messages[20].role", "input[20].role"),
        ("messages[2].tool_calls[0].function.name", "input[5].name"),
        ("messages[2].tool_calls[1].id", "input[4].tool_calls[1].id"),
        ("name", "name"),
        ("n", "m"),
    ],
)
def test_the_longest_name_is_replaced(field: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as caught, naming(NAMES):
        raise InvalidRequest(field, "is odd")
    assert (caught.value.field, caught.value.message) == (named, "is odd")


@pytest.mark.parametrize(
    ("field", "named"),
    [("prompt", "input"), ("prompt[1]", "input[1]"), ("messages[2].role", "input[4].role"), ("n", "m")],
)
def test_names_of_a_body_that_was_translated_twice(field: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as caught, naming(through({"prompt": "messages"}, NAMES)):
        raise InvalidRequest(field, "is odd")
    assert caught.value.field == named
