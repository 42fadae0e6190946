"""What `--exact` costs on a CPU: the embedded model, requests at once, with and without it, in turns.

    python benchmarks/cpu/exact.py [--requests 32] [--prompt 128] [--tokens 64] [--passes 3] [--threads 2]

Both modes of a pair are loaded side by side and take turns; the smallest of all passes counts, of the wall clock and of
the process's own time, which other programs on a shared machine disturb less. Prompts are drawn tokens, the prefix
cache is off, every request runs to its last token.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import gc
import random
import time

from chairlift.core.params import SamplingParams
from chairlift.llm import LLM

PAIRS = [("native", "bfloat16"), ("native", "float32"), ("torch", "bfloat16"), ("torch", "float32")]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time --exact on a CPU.")
    for name, default in (("requests", 32), ("prompt", 128), ("tokens", 64), ("passes", 3), ("threads", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", choices=("native", "torch"))
    options = parser.parse_args()
    print("kernels   dtype      requests   wall: default  exact  ratio   own time: default  exact  ratio")
    for kernels, dtype in PAIRS:
        if options.only in (None, kernels):
            for requests in (options.requests, 1):
                compare(kernels, dtype, requests, options)
            gc.collect()


def compare(kernels: str, dtype: str, requests: int, options: argparse.Namespace) -> None:
    sides = [
        LLM(exact=exact, kernels=kernels, dtype=dtype, threads=options.threads, max_running=32, prefix_cache=False,
            kv_memory="512MiB")
        for exact in (False, True)
    ]  # fmt: skip
    rng = random.Random(1)
    prompts = [[rng.randrange(1000, 40_000) for _ in range(options.prompt)] for _ in range(requests)]
    params = SamplingParams(temperature=0.0, max_tokens=options.tokens, ignore_eos=True)
    walls, owns = [float("inf")] * 2, [float("inf")] * 2
    for _ in range(options.passes):
        for index, llm in enumerate(sides):
            wall, own = time.perf_counter(), time.process_time()
            llm.generate(prompts, params)
            walls[index] = min(walls[index], time.perf_counter() - wall)
            owns[index] = min(owns[index], time.process_time() - own)
    print(
        f"{kernels:8}  {dtype:9}  {requests:8}  {walls[0]:14.2f}  {walls[1]:5.2f}  {walls[1] / walls[0]:5.2f}  "
        f"{owns[0]:18.2f}  {owns[1]:5.2f}  {owns[1] / owns[0]:5.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
