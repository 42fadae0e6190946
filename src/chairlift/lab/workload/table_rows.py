"""The rows of a file with their positions: JSON lines, a JSON list, CSV with a header, or plain lines; typed reading of
their fields.

    {...}            [{...},          TIMESTAMP,...       a .txt file: every line a prompt
    {...}             {...}]          2023-11-16 ...,...

Rows are read one at a time; only a JSON list is held in memory, as text. Errors name the row's position. A mistake in a
field is a ValueError with the field, the rule and the value found.
"""

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chairlift.core.errors import InvalidConfig
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


_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?\d{1,18}(\.\d*)?")


def rows(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        if path.suffix.lower() == ".txt":
            yield from _text_lines(path)
        else:
            yield from {"": lambda _: iter(()), "{": _json_lines, "[": _json_list}.get(
                _first_character(path), _csv_lines
            )(path)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error


def bad_row(path: Path, position: str, why: object) -> InvalidConfig:
    return InvalidConfig(f"{path}, {position}: {why}; correct it or take it out")


def _first_character(path: Path) -> str:
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        return next((line.strip()[0] for line in lines if not line.isspace()), "")


def _json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.isspace():
                position = f"line {number}"
                try:
                    row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                except (ValueError, RecursionError) as error:
                    raise _not_json(path, position, error) from error
                yield position, _object(path, position, row)


def _json_list(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except ValueError as error:
        raise InvalidConfig(f"{path}: not text: {error}") from error
    decoder, number = json.JSONDecoder(), 0
    at = _skip(text, text.index("[") + 1)
    while text[at : at + 1] != "]":
        number += 1
        position = f"record {number}"
        try:
            row, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise _not_json(path, position, error) from error
        yield position, _object(path, position, row)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise bad_row(path, position, "neither a comma nor the end of the list follows it")


def _csv_lines(path: Path) -> Iterator[tuple[str, Row]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines)
        try:
            for row in reader:
                position = f"line {reader.line_num}"
                if None in row or None in row.values():
                    raise bad_row(
                        path, position, f"has more or fewer columns than the header's {len(reader.fieldnames or ())}"
                    )
                yield position, {key: _value(text) for key, text in row.items()}
        except (csv.Error, ValueError) as error:
            raise bad_row(path, f"line {reader.line_num + 1}", f"not CSV: {error}") from error


def _text_lines(path: Path) -> Iterator[tuple[str, Row]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except ValueError as error:
                raise bad_row(path, f"line {number}", f"not text: {error}") from error
            if text:
                yield f"line {number}", {"prompt": text}


def _not_json(path: Path, position: str, error: Exception) -> InvalidConfig:
    is_deep = isinstance(error, RecursionError)
    return bad_row(path, position, "not JSON that can be read" if is_deep else f"not JSON: {error}")


def _object(path: Path, position: str, row: Any) -> Row:
    if not isinstance(row, dict):
        raise bad_row(path, position, "must be a JSON object")
    return row


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _value(text: str) -> int | float | str:
    number = _NUMBER.fullmatch(text)
    return text if number is None else float(text) if number[1] else int(text)
