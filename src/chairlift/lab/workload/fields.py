"""Typed reading of a workload's rows. A mistake is a ValueError with the field, the rule and the value found."""

import json
import math
from collections.abc import Mapping
from typing import Any

from chairlift.lab.workload.item import HASH_BLOCK

Row = Mapping[str, Any]

MAX_LENGTH = 10_000_000


def length(row: Row, key: str, least: int = 1) -> int:
    value = row.get(key)
    if type(value) is not int or not least <= value <= MAX_LENGTH:
        raise ValueError(f"{key} must be a whole number between {least} and {MAX_LENGTH}, got {shown(value)}")
    return value


def seconds(row: Row, key: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0.0 <= value < math.inf:
        raise ValueError(f"{key} must be a number of seconds, got {shown(value)}")
    return float(value)


def hash_ids(row: Row, prompt_tokens: int) -> tuple[int, ...]:
    """One for each block of the prompt, the last perhaps partial; or none."""
    value = row.get("hash_ids")
    if value is None:
        return ()
    if not isinstance(value, list) or any(type(hash_id) is not int for hash_id in value):
        raise ValueError(f"hash_ids must be a list of whole numbers, got {shown(value)}")
    num_blocks = -(-prompt_tokens // HASH_BLOCK)
    if value and len(value) < num_blocks:
        raise ValueError(f"hash_ids has {len(value)} ids for {num_blocks} blocks of {HASH_BLOCK} tokens")
    return tuple(value)


def text(row: Row, key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} must be text, got {shown(value)}")
    return value


def shown(value: object) -> str:
    text = "nothing" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
