import pytest
import yaml

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig

REFERENCES = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)  # written out: a billion numbers


@pytest.mark.parametrize("text", [REFERENCES, "i: 0x" + "f" * 20_000, "i: " + "x" * 10_000])
def test_a_value_of_any_size_is_refused_in_a_short_line(text: str) -> None:
    with pytest.raises(InvalidConfig, match="here: i must be a positive whole number, got ") as refusal:
        Fields("here", yaml.safe_load(text)).size("i")
    assert len(str(refusal.value)) < 150
