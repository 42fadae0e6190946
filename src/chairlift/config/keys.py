"""API keys: their owners, limits and shares.

A file is a YAML list. An item is a key, or a map that says more of its owner:

    - sk-a-key-of-at-least-sixteen-characters
    - {name: alice, key: sk-another-key-for-alice, requests_per_minute: 60, tokens_per_minute: 100000, weight: 2}

Always: only the digest of a key is kept; comparing takes the same time for every wrong key. No message holds a key.
"""

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.config.item_file import check_fields, items_of, positive, short_text
from chairlift.core.errors import InvalidConfig

MIN_LENGTH = 16
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
    is_short: bool = False  # fewer than `MIN_LENGTH` characters

    @property
    def label(self) -> str:
        return "this API key"

    @property
    def bucket(self) -> str:
        """What its requests are counted under."""
        return self.name


class ApiKeys(tuple[ApiKey, ...]):
    """All keys of a server; without any, none is needed."""

    __slots__ = ()

    def find(self, sent: str) -> ApiKey | None:
        digest = _digest(sent)
        found = [key for key in self if hmac.compare_digest(key.digest, digest)]  # always compares all
        return found[0] if found else None


def read_keys(plain: str | None, file: Path | None, option: str = "api_key", min_length: int = MIN_LENGTH) -> ApiKeys:
    """Keys separated by commas, and those of a file; `InvalidConfig` names what is wrong where. `option`: that has the
    former."""
    given = [] if plain is None else [text.strip() for text in plain.split(",")]
    items = [(text, _place(option, i, len(given))) for i, text in enumerate(given)]
    if file is not None:
        items += [(item, f"{file}: item {i + 1}") for i, item in enumerate(items_of(file, "keys"))]
    found = [_key(item, where, i, min_length) for i, (item, where) in enumerate(items)]
    for what, values in (("name", [key.name for key in found]), ("key", [key.digest for key in found])):
        if len(set(values)) != len(values):
            raise InvalidConfig(f"{file or option}: two keys have the same {what}")
    return ApiKeys(found)


def _place(option: str, index: int, count: int) -> str:
    return option if count == 1 else f"{option}, key {index + 1} of {count}"


def _key(item: Any, where: str, index: int, min_length: int) -> ApiKey:
    facts = item if isinstance(item, dict) else {"key": item}
    check_fields(facts, _FIELDS, where)
    text, name = facts.get("key"), facts.get("name", f"key-{index + 1}")
    if not isinstance(text, str) or len(text) < min_length or not text.isascii() or not text.isprintable():
        long = f", and this one has {len(text)}" if isinstance(text, str) and len(text) < min_length else ""
        raise InvalidConfig(
            f"{where}: a key must be text of at least {min_length} printable ASCII characters{long}; "
            f"`openssl rand -hex {MIN_LENGTH}` makes one"
        )
    if " " in text:
        raise InvalidConfig(f"{where}: key must not hold spaces")
    group = facts.get("cache_group")
    for field, value in (("name", name), ("cache_group", "none" if group is None else group)):
        short_text(value, where, field)
    requests, tokens, weight = (positive(facts.get(field), where, field) for field in _NUMBERS)
    share, is_short = 1.0 if weight is None else weight, len(text) < MIN_LENGTH
    return ApiKey(name, _digest(text), requests, tokens, share, group, is_short)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
