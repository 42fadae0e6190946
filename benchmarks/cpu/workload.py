"""The work every engine gets: 32 requests at once (prompts of 32-256 random tokens, outputs of 16-128), or one stream.

Greedy, end-of-sequence ignored, so that everybody produces the same number of tokens. Standard library only: it runs in
every engine's own environment.
"""

import argparse
import json
import random
import time
from collections.abc import Callable

Requests = list[tuple[list[int], int]]  # prompt, number of output tokens


def batch(vocab_size: int) -> Requests:
    rng = random.Random(0)
    lengths = [(rng.randint(32, 256), rng.randint(16, 128)) for _ in range(32)]
    return [([rng.randrange(16, vocab_size - 16) for _ in range(prompt)], output) for prompt, output in lengths]


def single(vocab_size: int) -> Requests:
    rng = random.Random(1)
    return [([rng.randrange(16, vocab_size - 16) for _ in range(128)], 128)]


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", required=True, help="folder with config.json, weights and tokenizer")
    arguments.add_argument("--repeat", type=int, default=2)
    return arguments


def measure(args: argparse.Namespace, name: str, run: Callable[[Requests], list[int]]) -> None:
    """`run` completes all requests and returns how many tokens each got. Prints one JSON line per case."""
    with open(f"{args.model}/config.json") as file:
        vocab_size = json.load(file)["vocab_size"]
    for case, requests in (("batch", batch(vocab_size)), ("single", single(vocab_size))):
        run([(prompt[:32], 4) for prompt, _ in requests])  # warm
        seconds = []
        for _ in range(args.repeat):
            start = time.perf_counter()
            got = run(requests)
            seconds.append(time.perf_counter() - start)
            assert got == [output for _, output in requests], f"{name} gave {got}"
        total = sum(output for _, output in requests)
        print("ROW", json.dumps({"engine": name, "case": case, "tokens": total, "seconds": seconds}), flush=True)
