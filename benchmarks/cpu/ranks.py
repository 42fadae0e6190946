"""Output tokens a second by number of ranks, through `LLM.generate`, as a share of one rank's.

    python benchmarks/cpu/ranks.py [--ranks 1,2] [--streams 1,8] [--tokens 64] [--repeats 3] [option=value ...]

Each number of ranks is a process of its own; they take turns, and the best run of each counts. Options are those of
`LLM`: model=DIR device=cuda measures several GPUs.
"""

import argparse
import json
import subprocess
import sys
import time

from machine import describe

PROMPT = "The Alps are"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--streams", default="1,8")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # one number of ranks, in this process
    parser.add_argument("options", nargs="*")
    asked = parser.parse_args()
    streams = [int(each) for each in asked.streams.split(",")]
    if asked.one is not None:
        print(json.dumps(measure(asked.one, streams, asked.tokens, dict(o.split("=", 1) for o in asked.options))))
        return
    ranks = [int(each) for each in asked.ranks.split(",")]
    best = {count: dict.fromkeys(streams, 0.0) for count in ranks}
    for _ in range(asked.repeats):
        for count in ranks:
            done = subprocess.run([sys.executable, *sys.argv, "--one", str(count)], capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            found = json.loads(done.stdout.splitlines()[-1])
            best[count] = {many: max(speed, found[str(many)]) for many, speed in best[count].items()}
    print(", ".join(describe().values()))
    for count, speeds in best.items():
        shown = (f"{many} streams {speed:.1f} ({speed / best[ranks[0]][many]:.2f})" for many, speed in speeds.items())
        print(f"{count} ranks: {', '.join(shown)} tokens/s")


def measure(count: int, streams: list[int], num_tokens: int, options: dict[str, str]) -> dict[int, float]:
    from chairlift import LLM, SamplingParams

    llm = LLM(tensor_parallel=count, **options)
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    speeds = {}
    for many in streams:
        llm.generate([PROMPT] * many, params, use_tqdm=False)  # warms up
        began = time.perf_counter()
        llm.generate([PROMPT] * many, params, use_tqdm=False)
        speeds[many] = many * num_tokens / (time.perf_counter() - began)
    return speeds


if __name__ == "__main__":
    main()
