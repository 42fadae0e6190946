"""What reading and loading an adapter costs others: the time between two tokens of a stream of the base.

    python benchmarks/cpu/adapter_loads.py [--rank 16] [--loads 20] [--every-s 0.5] [--model DIR [--random-weights]]

One thread streams an answer of the base. Beside it, nothing (quiet), a request of one token by an adapter that is there
(warm), or by one that no request has named before (cold), every half second, in turn. Without --model it is the
embedded one. Prints percentiles of the gaps in milliseconds, and of the time until the other request has its token. On
a GPU, if there is one.
"""

import argparse
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from machine import describe
from make_adapter import config_of, write_adapter

from chairlift import LLM, SamplingParams

PROMPT = "The Alps are"


def gaps_beside(llm: LLM, ask: Callable[[], object], num: int, every_s: float) -> tuple[list[float], list[float]]:
    """Seconds between two tokens of the base while `ask` is called so often, and how long each call took."""
    gaps, took, is_over = list[float](), list[float](), threading.Event()

    def stream() -> None:
        before = None
        while not is_over.is_set():
            for _ in llm.stream(PROMPT, SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)):
                now = time.perf_counter()
                gaps.extend([] if before is None else [now - before])
                before = now
                if is_over.is_set():
                    return
            before = None

    thread = threading.Thread(target=stream)
    thread.start()
    for _ in range(num):
        time.sleep(every_s)
        began = time.perf_counter()
        ask()
        took.append(time.perf_counter() - began)
    is_over.set()
    thread.join()
    return gaps, took


def shown(seconds: list[float]) -> str:
    p50, p99 = np.percentile(seconds, [50, 99])
    most = " ".join(f"{1000 * each:.1f}" for each in sorted(seconds)[-3:])
    return f"p50 {1000 * p50:6.1f}  p99 {1000 * p99:6.1f}  longest {most}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a stream while adapters are read and loaded.")
    parser.add_argument("--model")
    parser.add_argument("--random-weights", action="store_true")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--every-s", type=float, default=0.5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(args.model)
        names = [f"a{index}" for index in range(args.loads + 1)]
        num_bytes = write_adapter(Path(folder) / names[0], config, args.rank)
        for name in names[1:]:
            shutil.copytree(Path(folder) / names[0], Path(folder) / name, copy_function=os.link)
        more = {"load_format": "dummy", "dtype": "bfloat16"} if args.random_weights else {}
        llm = LLM(
            args.model, lora_dir=folder, max_loras=8, max_lora_rank=max(64, args.rank), kv_memory="512MiB",
            max_model_len=256, **more,
        )  # fmt: skip
        fresh = iter(names)

        def ask(name: str) -> None:
            params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
            llm.generate([PROMPT], params, use_tqdm=False, lora_request=name)

        ask(next(fresh))
        ways: dict[str, Callable[[], object]] = {
            "quiet": lambda: None,
            "warm": lambda: ask(names[0]),
            "cold": lambda: ask(next(fresh)),
        }
        print(f"{', '.join(describe().values())}; adapters of {num_bytes / 1e6:.0f} MB, rank {args.rank}")
        for name, way in ways.items():
            gaps, took = gaps_beside(llm, way, args.loads, args.every_s)
            print(f"{name:6} gaps {shown(gaps)}   first token {shown(took)}")


if __name__ == "__main__":
    main()
