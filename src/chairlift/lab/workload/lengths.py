"""Workloads from lengths alone: `lengths:prompt=512,output=16-128,count=1000`, where LOW-HIGH is drawn uniformly. `n`:
answers to each prompt; `beams`: members of a search for them."""

import random
import re
from collections.abc import Iterator

from chairlift.lab.workload.item import Item
from chairlift.lab.workload.spec import Spec, parse_spec

NAME = "lengths"
Range = tuple[int, int]


def is_lengths(text: str) -> bool:
    return text.partition(":")[0] == NAME


def parse_lengths(text: str, seed: int, origin: str = "--workload") -> Iterator[Item]:
    """Checks the text at once; items are drawn one at a time."""
    spec = parse_spec(text, origin, (NAME,))
    spec.expect(("prompt", "output", "count", "n", "beams"))
    n = spec.count("n") if "n" in spec.values else 1
    beams = spec.count("beams") if "beams" in spec.values else 0
    if beams and n > beams:
        raise spec.bad("n", "must be at most beams")
    rng = random.Random(f"lengths {seed}")
    return _items(_range(spec, "prompt"), _range(spec, "output"), spec.count("count"), n, beams, rng)


def _items(prompt: Range, output: Range, count: int, n: int, beams: int, rng: random.Random) -> Iterator[Item]:
    for _ in range(count):
        yield Item(prompt_tokens=rng.randint(*prompt), output_tokens=rng.randint(*output), n=n, beam_width=beams)


def _range(spec: Spec, key: str) -> Range:
    match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", spec.values.get(key, ""))
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high:
        raise spec.bad(key, "must be a number of tokens, or two as in 16-128")
    return low, high
