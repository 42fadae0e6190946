"""Workload files: JSON lines, one request each, in order of arrival; docs/formats.md has every field.

Lines are read as they are needed, so a file may be longer than memory. A line that cannot be used is named by number.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from chairlift.core.errors import InvalidConfig
from chairlift.workload.item import Item

HASH_BLOCK = 512
MAX_LENGTH = 10_000_000


def read(path: Path, limit: int | None = None, divide_lengths: float = 1.0) -> Iterator[Item]:
    """The first `limit` requests; prompts and outputs are divided, but no length falls below 1."""
    last, count = 0.0, 0
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if count == limit:
                    return
                if line.isspace():
                    continue
                try:
                    item = _item(line)
                    if item.arrival_s < last:
                        raise ValueError(f"arrival_s {item.arrival_s:g} is before the line above ({last:g})")
                except ValueError as error:
                    raise InvalidConfig(f"{path}, line {number}: {error}") from error
                last, count = item.arrival_s, count + 1
                yield item if divide_lengths == 1.0 else divided(item, divide_lengths)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    if count == 0:
        raise InvalidConfig(f"{path}: there are no requests in it")


def divided(item: Item, by: float) -> Item:
    return replace(
        item,
        prompt_tokens=max(1, round(item.prompt_tokens / by)),
        output_tokens=max(1, round(item.output_tokens / by)),
        hash_block=item.hash_block / by,
    )


def _item(line: bytes) -> Item:
    """Raises ValueError with the rule that was broken."""
    try:
        values = json.loads(line.decode())
    except RecursionError as error:
        raise ValueError("not JSON that can be read") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError("must be a JSON object")
    item = Item(
        prompt_tokens=_length(values, "prompt_tokens"),
        output_tokens=_length(values, "output_tokens"),
        arrival_s=_seconds(values, "arrival_s", 0.0) or 0.0,
        hash_ids=tuple(_ids(values.get("hash_ids"))),
        priority=_priority(values.get("priority")),
        user=_user(values.get("user")),
        deadline_s=_seconds(values, "deadline_s", None),
    )
    num_blocks = -(-item.prompt_tokens // HASH_BLOCK)
    if item.hash_ids and len(item.hash_ids) < num_blocks:
        raise ValueError(f"hash_ids has {len(item.hash_ids)} ids for {num_blocks} blocks of {HASH_BLOCK} tokens")
    return item


def _length(values: dict[str, Any], key: str) -> int:
    value = values.get(key)
    if type(value) is not int or not 1 <= value <= MAX_LENGTH:
        raise ValueError(f"{key} must be a whole number between 1 and {MAX_LENGTH}, got {_shown(value)}")
    return value


def _seconds(values: dict[str, Any], key: str, default: float | None) -> float | None:
    value = values.get(key)
    if value is None:
        return default
    if type(value) not in (int, float) or not 0.0 <= value < math.inf:
        raise ValueError(f"{key} must be a number of seconds, got {_shown(value)}")
    return float(value)


def _ids(value: object) -> list[int]:
    if value is None:
        return []
    if not isinstance(value, list) or any(type(hash_id) is not int for hash_id in value):
        raise ValueError(f"hash_ids must be a list of whole numbers, got {_shown(value)}")
    return value


def _priority(value: object) -> int:
    if value is None:
        return 0
    if type(value) is not int or abs(value) > 2**31:
        raise ValueError(f"priority must be a whole number, got {_shown(value)}")
    return value


def _user(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"user must be text, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = "nothing" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
