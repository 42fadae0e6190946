"""A workload by what an option says: a file of any kind, the contest's lengths, or lengths to draw."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from chairlift.workload.file import divided, read
from chairlift.workload.item import Item
from chairlift.workload.kinds.kind import Tokenizing
from chairlift.workload.lengths import is_lengths, parse_lengths
from chairlift.workload.texts import no_texts

CONTEST = "contest"  # the lengths of its 1,500 requests, in the Llama-2 vocabulary
_CONTEST_FILE = Path(__file__).with_name("contest.jsonl")


def load_items(
    workload: str,
    limit: int | None = None,
    divide_lengths: float = 1.0,
    seed: int = 0,
    max_length: int | None = None,
    texts: Tokenizing = no_texts,
) -> Iterator[Item]:
    if not is_lengths(workload):
        path = _CONTEST_FILE if workload == CONTEST else Path(workload)
        return read(path, limit, divide_lengths, max_length, texts)
    drawn = parse_lengths(workload, seed)
    items = drawn if divide_lengths == 1.0 else (divided(item, divide_lengths) for item in drawn)
    return islice((item for item in items if max_length is None or _total(item) <= max_length), limit)


def _total(item: Item) -> int:
    return item.prompt_tokens + item.output_tokens
