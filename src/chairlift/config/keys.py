"""API keys: their owners, limits and shares.

A file is a YAML list. An item is a key, or a map that says more of its owner:

    - sk-a-key-of-at-least-sixteen-characters
    - {name: alice, key: sk-another-key-for-alice, requests_per_minute: 60, tokens_per_minute: 100000, weight: 2}

Always: only the digest of a key is kept; comparing takes the same time for every wrong key. No message holds a key.
"""

import hashlib
import hmac
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from chairlift.core.errors import InvalidConfig

MIN_LENGTH = 16
_BETWEEN_LOOKS_S = 0.02
_MAX_LOOKS = 50
_NUMBERS = ("requests_per_minute", "tokens_per_minute", "weight")
_FIELDS = ("name", "key", *_NUMBERS, "cache_group")


@dataclass(frozen=True, slots=True)
class ApiKey:
    name: str  # shown in logs and on its own page; the user of a fair share
    digest: bytes
    requests_per_minute: float | None = None  # None: no limit
    tokens_per_minute: float | None = None  # prompt and output together
    weight: float = 1.0  # of its share, where the policy is fair-share
    cache_group: str | None = None  # keys of one group share cached prefixes; None: not shared


class ApiKeys(tuple[ApiKey, ...]):
    """All keys of a server; without any, none is needed."""

    __slots__ = ()

    def find(self, sent: str) -> ApiKey | None:
        digest = _digest(sent)
        found = [key for key in self if hmac.compare_digest(key.digest, digest)]  # always compares all
        return found[0] if found else None


def read_keys(plain: str | None, file: Path | None, option: str = "api_key") -> ApiKeys:
    """Keys separated by commas, and those of a file; `InvalidConfig` names what is wrong where. `option`: that has the
    former."""
    given = [] if plain is None else [text.strip() for text in plain.split(",")]
    found = [_key(text, _place(option, i, len(given)), i) for i, text in enumerate(given)]
    if file is not None:
        found += [_key(item, f"{file}: item {i + 1}", len(given) + i) for i, item in enumerate(_items(file))]
    for what, values in (("name", [key.name for key in found]), ("key", [key.digest for key in found])):
        if len(set(values)) != len(values):
            raise InvalidConfig(f"{file or option}: two keys have the same {what}")
    return ApiKeys(found)


def _place(option: str, index: int, count: int) -> str:
    return option if count == 1 else f"{option}, key {index + 1} of {count}"


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


def _items(file: Path) -> list[Any]:
    try:
        items = yaml.safe_load(_settled(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (yaml.YAMLError, RecursionError):
        raise InvalidConfig(f"{file}: not valid YAML") from None  # what the parser says may hold a key
    if not isinstance(items, list) or not items:
        raise InvalidConfig(f"{file}: must hold a list of keys")
    return items


def _key(item: Any, where: str, index: int) -> ApiKey:
    facts = item if isinstance(item, dict) else {"key": item}
    unknown = next((name for name in facts if name not in _FIELDS), None)
    if unknown is not None:
        raise InvalidConfig(f"{where}: unknown field {str(unknown)[:40]!r}; known: {', '.join(_FIELDS)}")
    text, name = facts.get("key"), facts.get("name", f"key-{index + 1}")
    if not isinstance(text, str) or len(text) < MIN_LENGTH or not text.isascii() or not text.isprintable():
        long = f", and this one has {len(text)}" if isinstance(text, str) and len(text) < MIN_LENGTH else ""
        raise InvalidConfig(
            f"{where}: a key must be text of at least {MIN_LENGTH} printable ASCII characters{long}; "
            f"`openssl rand -hex {MIN_LENGTH}` makes one"
        )
    if " " in text:
        raise InvalidConfig(f"{where}: key must not hold spaces")
    group = facts.get("cache_group")
    for field, value in (("name", name), ("cache_group", "none" if group is None else group)):
        if not isinstance(value, str) or not value or len(value) > 64 or not value.isprintable():
            raise InvalidConfig(f"{where}: {field} must be text of 1 to 64 characters")
    requests, tokens, weight = (_positive(facts.get(field), where, field) for field in _NUMBERS)
    return ApiKey(name, _digest(text), requests, tokens, 1.0 if weight is None else weight, group)


def _positive(value: Any, where: str, field: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise InvalidConfig(f"{where}: {field} must be a number above 0")
    return float(value)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
