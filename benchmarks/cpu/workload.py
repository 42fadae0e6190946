"""The work every engine gets: 32 requests at once (prompts of 32-256 random tokens, outputs of 16-128), or one stream.

Greedy, end-of-sequence ignored, so that every program produces as many tokens. Standard library only: it runs in every
engine's own environment.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Requests = list[tuple[list[int], int]]  # prompt, number of output tokens
TICKS = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
THREADS = int(os.environ.get("OMP_NUM_THREADS", CORES))


def batch(vocab_size: int) -> Requests:
    rng = random.Random(0)
    lengths = [(rng.randint(32, 256), rng.randint(16, 128)) for _ in range(32)]
    return [([rng.randrange(16, vocab_size - 16) for _ in range(prompt)], output) for prompt, output in lengths]


def single(vocab_size: int) -> Requests:
    rng = random.Random(1)
    return [([rng.randrange(16, vocab_size - 16) for _ in range(128)], 128)]


CASES = {"batch": batch, "single": single}


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser()
    arguments.add_argument(
        "--model", required=True, help="folder with config.json, weights and tokenizer, or GGUF file"
    )
    arguments.add_argument("--vocab-size", type=int, help="of a GGUF file; of a folder it is in config.json")
    arguments.add_argument("--case", choices=CASES, help="only this one (default: both)")
    arguments.add_argument("--repeat", type=int, default=2)
    arguments.add_argument("--shorter", type=int, default=1, metavar="N", help="divide all lengths by N")
    return arguments


def measure(args: argparse.Namespace, name: str, run: Callable[[Requests], list[int]]) -> None:
    """`run` completes all requests and returns how many tokens each got. Prints one JSON line per case."""
    vocab_size = args.vocab_size or json.loads(Path(args.model, "config.json").read_text())["vocab_size"]
    for case in [args.case] if args.case else CASES:
        whole = CASES[case](vocab_size)
        requests = [(prompt[: len(prompt) // args.shorter], output // args.shorter) for prompt, output in whole]
        run([(prompt[:32], 4) for prompt, _ in requests])  # warm
        seconds, cpu_seconds, others = [], [], []
        for _ in range(args.repeat):
            start, machine, own = time.perf_counter(), machine_s(), session_s()
            got = run(requests)
            seconds.append(time.perf_counter() - start)
            cpu_seconds.append(session_s() - own)
            others.append(max(0.0, (machine_s() - machine - cpu_seconds[-1]) / seconds[-1] / CORES))
            assert got == [output for _, output in requests], f"{name} gave {got}"
        total = sum(output for _, output in requests)
        row = {"engine": name, "case": case, "tokens": total}
        row |= {"seconds": seconds, "cpu_seconds": cpu_seconds, "others": others}
        print("ROW", json.dumps(row), flush=True)


def machine_s() -> float:
    """CPU seconds that all processes of the machine have used."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    return (user + nice + system + sum(rest)) / TICKS


def session_s() -> float:
    """CPU seconds of the living processes of this session: `run.py` gives each engine one of its own."""
    return sum(_process_s(entry) for entry in Path("/proc").glob("[0-9]*"))


def _process_s(entry: Path) -> float:
    with suppress(OSError):  # it has ended
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        if int(fields[3]) == os.getsid(0):
            return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0
