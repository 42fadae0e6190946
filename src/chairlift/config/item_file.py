"""Files that hold a YAML list, each item a map of known fields: API keys, and limits of adapters.

Always: a file that is being written is read once it is complete. What is wrong is named with its file, item and field.
"""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from chairlift.core.errors import InvalidConfig

MAX_NAME = 64
_BETWEEN_LOOKS_S = 0.02
_MAX_LOOKS = 50


def items_of(file: Path, what: str) -> list[Any]:
    try:
        items = yaml.safe_load(_settled(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (yaml.YAMLError, RecursionError):
        raise InvalidConfig(f"{file}: not valid YAML") from None  # what the parser says may hold a key
    if not isinstance(items, list) or not items:
        raise InvalidConfig(f"{file}: must hold a list of {what}")
    return items


def _settled(file: Path) -> str:
    """The text once it stays the same: half a list of keys is a list too, and half a key may be a key."""
    text = file.read_text(encoding="utf-8")
    if not file.is_file():  # a pipe, which is read once
        return text
    for _ in range(_MAX_LOOKS):
        time.sleep(_BETWEEN_LOOKS_S)
        before, text = text, file.read_text(encoding="utf-8")
        if text == before:
            return text
    raise InvalidConfig(f"{file}: changes all the time; write it beside its place and rename it")


def check_fields(facts: Mapping[Any, Any], known: Collection[str], where: str) -> None:
    unknown = next((name for name in facts if name not in known), None)
    if unknown is not None:
        raise InvalidConfig(f"{where}: unknown field {str(unknown)[:40]!r}; known: {', '.join(known)}")


def short_text(value: Any, where: str, field: str, most: int = MAX_NAME) -> str:
    if not isinstance(value, str) or not value or len(value) > most or not value.isprintable():
        raise InvalidConfig(f"{where}: {field} must be text of 1 to {most} characters")
    return value


def positive(value: Any, where: str, field: str) -> float | None:
    """None where it is not given."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise InvalidConfig(f"{where}: {field} must be a number above 0")
    return float(value)
