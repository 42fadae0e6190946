"""Workload files of every kind, known by the fields of their first row; docs/formats.md has them all.

Rows are read as they are needed, so a file may be longer than memory. A row that cannot be used is named by its place;
what is left out is counted and said at the end.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from chairlift.core.errors import InvalidConfig, InvalidRequest
from chairlift.workload.fields import Row
from chairlift.workload.item import Item
from chairlift.workload.kinds.kind import Kind, Tokenizing
from chairlift.workload.kinds.lengths import LENGTHS
from chairlift.workload.kinds.traces import AZURE, BURSTGPT, MOONCAKE
from chairlift.workload.kinds.written import ALPACA, CHATS, PROMPTS, SHAREGPT
from chairlift.workload.table_rows import bad_row, rows
from chairlift.workload.texts import no_texts

KINDS = (LENGTHS, MOONCAKE, AZURE, BURSTGPT, SHAREGPT, ALPACA, CHATS, PROMPTS)
_log = logging.getLogger(__name__)


def read(
    path: Path,
    limit: int | None = None,
    divide_lengths: float = 1.0,
    max_length: int | None = None,
    texts: Tokenizing = no_texts,
) -> Iterator[Item]:
    """The first `limit` requests of at most `max_length` tokens in all; lengths are divided first, none below 1."""
    count = num_empty = num_long = 0
    for item in _in_order(path, texts):
        if item is None:
            num_empty += 1
            continue
        shorter = item if divide_lengths == 1.0 else divided(item, divide_lengths)
        if max_length is not None and shorter.prompt_tokens + shorter.output_tokens > max_length:
            num_long += 1
            continue
        count += 1
        yield shorter
        if count == limit:
            break
    if num_empty:
        _log.warning("%s: left out %d requests without a prompt or an answer", path, num_empty)
    if num_long:
        _log.warning("%s: left out %d requests of more than %d tokens", path, num_long, max_length)
    if count == 0:
        raise InvalidConfig(f"{path}: there are no requests in it{' that are to be kept' * bool(num_empty + num_long)}")


def divided(item: Item, by: float) -> Item:
    if item.prompt is not None:
        raise InvalidConfig("prompts that were written cannot be made shorter; --max-length leaves long ones out")
    return replace(
        item,
        prompt_tokens=max(1, round(item.prompt_tokens / by)),
        output_tokens=max(1, round(item.output_tokens / by)),
        hash_block=item.hash_block / by,
    )


def _in_order(path: Path, texts: Tokenizing) -> Iterator[Item | None]:
    """None for a row with nothing to ask or to answer."""
    kind: Kind | None = None
    start: float | None = None
    last = 0.0
    for place, row in rows(path):
        kind = kind or _kind(path, row)
        try:
            item = kind.item(row, texts)
            if item is not None:
                if start is None:
                    start = 0.0 if kind.is_relative else item.arrival_s
                item = replace(item, arrival_s=item.arrival_s - start) if start else item
                if item.arrival_s < last:
                    raise ValueError(f"it comes {item.arrival_s:g} s after the start, before the one above ({last:g})")
                last = item.arrival_s
        except InvalidRequest as error:
            raise bad_row(path, place, error.message) from error
        except ValueError as error:
            raise bad_row(path, place, error) from error
        yield item


def _kind(path: Path, row: Row) -> Kind:
    kind = next((kind for kind in KINDS if kind.field in row), None)
    if kind is None:
        known = ", ".join(f"{kind.name} ({kind.field})" for kind in KINDS)
        found = ", ".join(str(key)[:40] for key in list(row)[:8]) or "none"
        raise InvalidConfig(
            f"{path}: no workload that is known: its first row has the fields {found}; known are, by their fields: "
            f"{known}; prompts as plain lines are in a file that ends in .txt"
        )
    return kind
