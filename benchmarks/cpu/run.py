"""chairlift beside other engines on this CPU, in turn, several rounds: a table of output tokens per second.

    python benchmarks/cpu/run.py --model MODEL --rounds 3 \
        --peer "transformers:/venv-hf/bin/python row_transformers.py --model DIR" \
        --peer "llama:/venv-llama/bin/python row_llama_server.py --model FILE --vocab-size N --server /llama-server"

Each peer is a name and the command that runs its row with the interpreter of the environment it is installed in; paths
are from this folder. `--chairlift "--quantize none"` adds a row of chairlift with these options, once for each time it
is given; a GGUF file needs `--vocab-size`. Machines are noisy: engines take turns, each figure is the best of all its
runs (the median is beside it), ratios are to the first peer, by the best runs, and compare within one invocation only.
`others` is the share of the machine's cores that other processes used during the best run: large, it spoils the figure,
and CPU seconds are what is left to compare. With `--patience S` each row waits up to S seconds for a quiet machine.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import machine
import workload

HERE = Path(__file__).parent
QUIET, LOOK_S = 0.1, 3.0  # share of the cores in use, over so many seconds


class Run(NamedTuple):
    tokens_per_s: float
    seconds: float
    cpu_seconds: float  # of all threads and processes of the engine
    others: float


Runs = dict[tuple[str, str], list[Run]]  # by engine and case


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", required=True, help="folder or GGUF file, of chairlift's rows")
    arguments.add_argument("--vocab-size", type=int, help="of a GGUF file")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--repeat", type=int, default=2, help="runs of each case in a round, of chairlift's rows")
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    arguments.add_argument("--patience", type=float, default=0.0, metavar="S", help="wait so long for a quiet machine")
    arguments.add_argument("--chairlift", action="append", metavar="OPTIONS", help="a row with these (default: none)")
    arguments.add_argument("--peer", action="append", default=[], metavar="NAME:COMMAND")
    arguments.add_argument("--json", help="also write all runs to this file")
    args = arguments.parse_args()
    own = [sys.executable, "row_chairlift.py", "--model", args.model, "--repeat", str(args.repeat)]
    own += ["--vocab-size", str(args.vocab_size)] if args.vocab_size else []
    commands = [[*own, *shlex.split(options)] for options in args.chairlift or [""]]
    peers = [shlex.split(peer.split(":", 1)[1]) for peer in args.peer]
    env = dict(os.environ) | {"OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1"}
    runs: Runs = {}
    base: str | None = None  # the first peer's name
    for turn in range(args.rounds):
        for command in commands + peers:
            print(f"round {turn + 1}/{args.rounds}: {shlex.join(command[1:])}", file=sys.stderr)
            wait_for_quiet(args.patience)
            for row in run_row(command, env):
                runs.setdefault((row["engine"], row["case"]), []).extend(runs_of(row))
                base = base or (row["engine"] if command in peers else None)
    about = machine.describe()
    print(f"{about['machine']}, {about['cpu']}, {about['cores']} cores ({about['instructions']})\n")
    report(runs, base)
    if args.json:
        measured = [
            {"engine": engine, "case": case, "runs": [run._asdict() for run in each]}
            for (engine, case), each in runs.items()
        ]
        Path(args.json).write_text(json.dumps({"machine": about, "rows": measured}, indent=1) + "\n")


def wait_for_quiet(patience_s: float) -> None:
    until, is_quiet = time.monotonic() + patience_s, False
    while not is_quiet and time.monotonic() < until:
        used = workload.machine_s()
        time.sleep(LOOK_S)
        is_quiet = workload.machine_s() - used < QUIET * LOOK_S * workload.CORES


def run_row(command: list[str], env: dict[str, str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        command, cwd=HERE, env=env, capture_output=True, text=True, timeout=1800, start_new_session=True
    )
    rows = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if done.returncode or not rows:
        print(f"failed: {shlex.join(command)}\n{done.stderr[-2000:]}", file=sys.stderr)
    return rows


def runs_of(row: dict[str, Any]) -> list[Run]:
    columns = zip(row["seconds"], row["cpu_seconds"], row["others"], strict=True)
    return [Run(row["tokens"] / seconds, seconds, cpu, others) for seconds, cpu, others in columns]


def report(runs: Runs, base: str | None) -> None:
    print("Output tokens per second, best (median); ratio to the first peer; CPU seconds and others of the best run.\n")
    print("| engine | batch of 32 | ratio | CPU s | others | single stream | ratio | CPU s | others |")
    print("|---|---|---|---|---|---|---|---|---|")
    for engine in dict.fromkeys(engine for engine, _ in runs):
        cells = [cell for case in ("batch", "single") for cell in cells_of(runs, engine, case, base)]
        print(f"| {engine} | {' | '.join(cells)} |")


def cells_of(runs: Runs, engine: str, case: str, base: str | None) -> tuple[str, ...]:
    found, compared = runs.get((engine, case)), runs.get((base or "", case))
    if not found:
        return ("-",) * 4
    best = max(found)
    ratio = f"{best.tokens_per_s / max(compared).tokens_per_s:.2f}" if compared else "-"
    median = statistics.median(run.tokens_per_s for run in found)
    return f"{best.tokens_per_s:.1f} ({median:.1f})", ratio, f"{best.cpu_seconds:.1f}", f"{best.others:.0%}"


if __name__ == "__main__":
    main()
