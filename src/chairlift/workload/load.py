"""A workload by what an option says: a file of JSON lines, or lengths to draw."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from chairlift.workload.file import divided, read
from chairlift.workload.item import Item
from chairlift.workload.lengths import is_lengths, parse_lengths


def load_items(workload: str, limit: int | None = None, divide_lengths: float = 1.0, seed: int = 0) -> Iterator[Item]:
    if not is_lengths(workload):
        return read(Path(workload), limit, divide_lengths)
    items = islice(parse_lengths(workload, seed), limit)
    return items if divide_lengths == 1.0 else (divided(item, divide_lengths) for item in items)
