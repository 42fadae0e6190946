"""Workloads: files of every format, recognized by the fields of the first row, the contest's lengths, or drawn lengths.

docs/formats.md lists the formats. Rows are read one at a time, so a file may be larger than memory. An error names the
row's position. Rows that are left out are counted in a warning at the end.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from chairlift.config.options.values import did_you_mean
from chairlift.core.errors import InvalidConfig, InvalidRequest
from chairlift.lab.workload import lengths
from chairlift.lab.workload.formats import (
    ALPACA,
    AZURE,
    BURSTGPT,
    CHATS,
    LENGTHS,
    MOONCAKE,
    PROMPTS,
    SHAREGPT,
    FileFormat,
    LoadEncoder,
)
from chairlift.lab.workload.item import Item, no_encoder
from chairlift.lab.workload.table_rows import Row, bad_row, rows

FORMATS = (LENGTHS, MOONCAKE, AZURE, BURSTGPT, SHAREGPT, ALPACA, CHATS, PROMPTS)
CONTEST = "contest"  # the lengths of its 1,500 requests, in the Llama-2 vocabulary
_CONTEST_FILE = Path(__file__).with_name("contest.jsonl")
_log = logging.getLogger(__name__)


def load_items(
    workload: str,
    limit: int | None = None,
    divide_lengths: float = 1.0,
    seed: int = 0,
    max_length: int | None = None,
    load_encoder: LoadEncoder = no_encoder,
) -> Iterator[Item]:
    """A workload from the value of --workload."""
    if not lengths.is_lengths(workload):
        path = _CONTEST_FILE if workload == CONTEST else Path(workload)
        meant = did_you_mean(workload.partition(":")[0], (CONTEST, lengths.NAME))
        if meant and not path.exists():
            raise InvalidConfig(f"{workload}: no such file{meant}")
        return read(path, limit, divide_lengths, max_length, load_encoder)
    drawn = lengths.parse_lengths(workload, seed)
    items = drawn if divide_lengths == 1.0 else (divided(item, divide_lengths) for item in drawn)
    longest = math.inf if max_length is None else max_length
    return islice((item for item in items if item.prompt_tokens + item.output_tokens <= longest), limit)


def read(
    path: Path,
    limit: int | None = None,
    divide_lengths: float = 1.0,
    max_length: int | None = None,
    load_encoder: LoadEncoder = no_encoder,
) -> Iterator[Item]:
    """The first `limit` requests of at most `max_length` tokens in all, after their lengths are divided (least: 1)."""
    count = num_empty = num_long = 0
    for item in _in_order(path, load_encoder):
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
        raise InvalidConfig("written prompts cannot be made shorter; --max-length leaves long ones out")
    return replace(
        item,
        prompt_tokens=max(1, round(item.prompt_tokens / by)),
        output_tokens=max(1, round(item.output_tokens / by)),
        hash_block=item.hash_block / by,
    )


def _in_order(path: Path, load_encoder: LoadEncoder) -> Iterator[Item | None]:
    """Items with arrivals from the start; None for a row without a prompt or an answer."""
    file_format: FileFormat | None = None
    start: float | None = None
    last = 0.0
    for position, row in rows(path):
        file_format = file_format or _format(path, row)
        try:
            item = file_format.item(row, load_encoder)
            if item is not None:
                if start is None:
                    start = 0.0 if file_format.is_relative else item.arrival_s
                item = replace(item, arrival_s=item.arrival_s - start) if start else item
                if item.arrival_s < last:
                    raise ValueError(f"it comes {item.arrival_s:g} s after the start, before the one above ({last:g})")
                last = item.arrival_s
        except InvalidRequest as error:
            raise bad_row(path, position, error.message) from error
        except ValueError as error:
            raise bad_row(path, position, error) from error
        yield item


def _format(path: Path, row: Row) -> FileFormat:
    file_format = next((file_format for file_format in FORMATS if file_format.field in row), None)
    if file_format is None:
        known = ", ".join(f"{file_format.name} ({file_format.field})" for file_format in FORMATS)
        found = ", ".join(str(key)[:40] for key in list(row)[:8]) or "none"
        raise InvalidConfig(
            f"{path}: not a known workload format: its first row has the fields {found}; known formats, by field: "
            f"{known}; prompts as plain lines need a file name that ends in .txt"
        )
    return file_format
