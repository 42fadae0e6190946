"""A shape as a part of a larger grammar is refused as it is on its own."""

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.grammar import nested


@pytest.mark.parametrize(
    ("structured", "said"),
    [
        (Structured.json_schema("[1]"), "not a JSON schema"),
        (Structured.json_schema("[" * 5000), "nested more than 200 levels"),
        (Structured.choice([]), "choices must be"),
        (Structured.structural_tag("[" * 5000), "nested more than 200 levels"),
    ],
)
def test_what_is_no_shape_is_refused(structured: Structured, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        nested(structured)
