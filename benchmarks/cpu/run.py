"""chairlift beside other engines on this CPU, in turn, several rounds: a table of output tokens per second.

    python benchmarks/cpu/run.py --model DIR --rounds 3 \
        --peer "transformers:/venv-hf/bin/python row_transformers.py --model DIR" \
        --peer "vllm:/venv-vllm/bin/python row_vllm.py --model DIR"

Each peer is a name and the command that runs its row with the interpreter of the environment it is installed in; paths
are from this folder. Machines are noisy: engines take turns, each figure is the best of all its runs (the median is
beside it), and ratios compare within one invocation only.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
Seconds = dict[tuple[str, str], list[float]]


def run_row(command: list[str], env: dict[str, str]) -> list[dict[str, object]]:
    done = subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True, timeout=900)
    rows = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if done.returncode or not rows:
        print(f"failed: {shlex.join(command)}\n{done.stderr[-2000:]}", file=sys.stderr)
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    arguments.add_argument("--peer", action="append", default=[], metavar="NAME:COMMAND")
    arguments.add_argument("--json", help="also write all runs to this file")
    args = arguments.parse_args()
    commands = [[sys.executable, "row_chairlift.py", "--model", args.model]]
    commands += [shlex.split(peer.split(":", 1)[1]) for peer in args.peer]
    env = dict(os.environ) | {"OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1"}
    seconds: Seconds = {}
    tokens: dict[str, int] = {}
    for turn in range(args.rounds):
        for command in commands:
            print(f"round {turn + 1}/{args.rounds}: {command[1]}", file=sys.stderr)
            for row in run_row(command, env):
                seconds.setdefault((str(row["engine"]), str(row["case"])), []).extend(row["seconds"])  # type: ignore[arg-type]
                tokens[str(row["case"])] = int(str(row["tokens"]))
    report(seconds, tokens)
    if args.json:
        runs = [{"engine": e, "case": c, "tokens": tokens[c], "seconds": s} for (e, c), s in seconds.items()]
        Path(args.json).write_text(json.dumps(runs, indent=1) + "\n")


def report(seconds: Seconds, tokens: dict[str, int]) -> None:
    engines = list(dict.fromkeys(engine for engine, _ in seconds))
    print("| engine | batch of 32, tok/s: best (median) | single stream, tok/s: best (median) |\n|---|---|---|")
    for engine in engines:
        cells = []
        for case in ("batch", "single"):
            runs = [tokens[case] / s for s in seconds.get((engine, case), [])]
            cells.append(f"{max(runs):.1f} ({statistics.median(runs):.1f})" if runs else "failed")
        print(f"| {engine} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
