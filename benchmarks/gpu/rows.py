"""The offline rows that `offline.py` and `offline_vllm.py` both run. Needs neither engine."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

Lengths = list[tuple[int, int]]  # of prompts and answers


def rows_of(workload: Path, first: int | None = None) -> dict[str, Lengths]:
    with workload.open() as file:
        contest = [(row["prompt_tokens"] + 1, row["output_tokens"]) for row in map(json.loads, file)]
    return {
        "contest": contest[:first],
        "single": [(128, 256)],
        "prompts": [(1024, 128)] * 256,
        "answers": [(128, 1024)] * 256,
    }


def prompts_of(lengths: Lengths, vocab_size: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(16, vocab_size - 16) for _ in range(count)] for count, _ in lengths]


def seconds_of(lengths: Lengths, answer: Callable[[], list[int]]) -> float:
    """`answer` says how many tokens each answer has."""
    start = time.perf_counter()
    got = answer()
    seconds = time.perf_counter() - start
    assert got == [count for _, count in lengths], "an answer has not its full length"
    return seconds


def figures_of(lengths: Lengths, seconds: float) -> dict[str, float]:
    return {"s": round(seconds, 3), "tok_s": round(sum(count for _, count in lengths) / seconds, 1)}
