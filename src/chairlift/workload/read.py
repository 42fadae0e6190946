"""A workload from the value of --workload: a file of any format, the contest's lengths, or drawn lengths."""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from chairlift.workload.encoder import no_encoder
from chairlift.workload.file import divided, read
from chairlift.workload.formats.format import LoadEncoder
from chairlift.workload.item import Item
from chairlift.workload.lengths import is_lengths, parse_lengths

CONTEST = "contest"  # the lengths of its 1,500 requests, in the Llama-2 vocabulary
_CONTEST_FILE = Path(__file__).with_name("contest.jsonl")


def load_items(
    workload: str,
    limit: int | None = None,
    divide_lengths: float = 1.0,
    seed: int = 0,
    max_length: int | None = None,
    load_encoder: LoadEncoder = no_encoder,
) -> Iterator[Item]:
    if not is_lengths(workload):
        path = _CONTEST_FILE if workload == CONTEST else Path(workload)
        return read(path, limit, divide_lengths, max_length, load_encoder)
    drawn = parse_lengths(workload, seed)
    items = drawn if divide_lengths == 1.0 else (divided(item, divide_lengths) for item in drawn)
    longest = math.inf if max_length is None else max_length
    return islice((item for item in items if item.prompt_tokens + item.output_tokens <= longest), limit)
