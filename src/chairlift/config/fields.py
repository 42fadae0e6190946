"""Typed reading of untrusted key/value maps: model configurations and GGUF metadata.

Every mistake names the file, the key and the value found there. Keys that were read are recorded.
"""

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chairlift.core.errors import InvalidConfig

MAX_LAYERS = 10_000  # far above any known model; more would cost memory before a missing weight is noticed
_MAX_SHOWN = 80  # characters
_REPR = reprlib.Repr()  # does not write out what a file's references make of a few lines
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother = 2, _MAX_SHOWN, _MAX_SHOWN


def shown(value: object) -> str:
    """A value as an error names it, however large it is."""
    try:
        text = _REPR.repr(value)
    except ValueError:  # a number of thousands of digits
        text = "a number far too large"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


@dataclass(frozen=True, slots=True)
class Fields:
    """`values` as read from `origin`; a key that is absent and a key that is null are the same."""

    origin: str
    values: Mapping[str, Any]
    _read: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def get(self, key: str, default: Any = None) -> Any:
        """As it is, null included."""
        self._read.add(key)
        return self.values.get(key, default)

    @property
    def unread(self) -> tuple[str, ...]:
        """Keys that have a value and were not read, in order."""
        return tuple(key for key, value in self.values.items() if value is not None and key not in self._read)

    def size(self, key: str, default: int | None = None, most: int = 2**31 - 1) -> int:
        """A whole number of at least 1; required unless there is a default."""
        value = self._get(key, default)
        if type(value) is not int or not 1 <= value <= most:
            raise self.bad(key, "must be a positive whole number" + ("" if most > 2**30 else f" up to {most}"))
        return value

    def number(self, key: str, default: float | None = None, least: float = 0.0, most: float = math.inf) -> float:
        value = self._get(key, default)
        # Compared first: a whole number may be too large for a float.
        if type(value) not in (int, float) or not least <= value <= most or not -1e300 < value < 1e300:
            raise self.bad(key, f"must be a number between {least:g} and {most:g}")
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        value = self.number(key, default)
        if value == 0.0:
            raise self.bad(key, "must be above 0")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if type(value) is not bool:
            raise self.bad(key, "must be true or false")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """One token id, a list of them, or none."""
        value = self.get(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if any(type(token) is not int for token in ids):
            raise self.bad(key, "must be a token id or a list of them")
        return tuple(token for token in ids if token >= 0)

    def token_id(self, key: str) -> int | None:
        return next(iter(self.token_ids(key)), None)

    def bad(self, key: str, rule: str) -> InvalidConfig:
        return InvalidConfig(f"{self.origin}: {key} {rule}, got {shown(self.values.get(key))}")

    def _get(self, key: str, default: Any) -> Any:
        value = self.get(key)
        value = default if value is None else value
        if value is None:
            raise InvalidConfig(f"{self.origin}: {key} is missing")
        return value
