"""Choices with parameters, as options write them: NAME, or NAME:key=value,key=value.

Always: a name, key or value that cannot be used is refused in one line that lists the usable ones.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from chairlift.core.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Spec:
    """`origin` is the option it was given with, for complaints."""

    origin: str
    name: str
    values: dict[str, str]

    def expect(self, keys: Sequence[str]) -> None:
        """Refuses keys other than these."""
        for key in self.values:
            if key not in keys:
                there = f"there are: {', '.join(keys)}" if keys else "it has none"
                raise InvalidConfig(f"{self.origin} {self.name}: unknown parameter {key!r}; {there}")

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0; required unless there is a default."""
        if key not in self.values and default is not None:
            return default
        try:
            value = float(self.values.get(key, ""))
        except ValueError:
            value = math.nan
        if not 0.0 < value < math.inf:
            raise self.bad(key, "must be a number above 0")
        return value

    def count(self, key: str) -> int:
        """A whole number of at least 1; required."""
        text = self.values.get(key, "")
        if not re.fullmatch(r"\d{1,9}", text) or int(text) == 0:
            raise self.bad(key, "must be a whole number of at least 1")
        return int(text)

    def bad(self, key: str, rule: str) -> InvalidConfig:
        found = f"got {self.values[key]!r}" if key in self.values else "but it is missing"
        return InvalidConfig(f"{self.origin} {self.name}: {key} {rule}, {found}")


def parse_spec(text: str, origin: str, names: Sequence[str]) -> Spec:
    name, colon, rest = text.partition(":")
    if name not in names:
        raise InvalidConfig(f"{origin} {name!r} is not known; there are: {', '.join(names)}")
    values: dict[str, str] = {}
    for part in rest.split(",") if colon else ():
        key, equals, value = part.partition("=")
        if not (key and equals and value) or key in values:
            raise InvalidConfig(f"{origin} {name}: parameters are written key=value,key=value, got {rest!r}")
        values[key] = value
    return Spec(origin, name, values)
