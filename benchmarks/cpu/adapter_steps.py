"""What adapters cost a CPU: the time of a token, and of a prompt, of requests with adapters beside the base's.

    python benchmarks/cpu/adapter_steps.py [--model DIR] [--rank 16] [--rounds 3]

Random adapters of all linear layers. Streams of the base, with one adapter for all, and with one of four each; then a
prompt of 500 words. In turn, the best of each.
"""

import argparse
import tempfile
import time
from pathlib import Path

from machine import describe
from make_adapter import config_of, write_adapter

from chairlift import LLM, SamplingParams

NAMES = ("a", "b", "c", "d")
TOKENS = 64
STREAMS = (1, 2, 4, 16)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(args.model)
        for name in NAMES:
            write_adapter(Path(folder) / name, config, args.rank)
        llm = LLM(args.model, lora_dir=folder, max_loras=len(NAMES), max_lora_rank=max(64, args.rank))

        def seconds(prompts: list[str], adapters: list[str] | None, num_tokens: int) -> float:
            params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
            began = time.perf_counter()
            llm.generate(prompts, params, use_tqdm=False, lora_request=adapters)
            return time.perf_counter() - began

        print(f"{', '.join(describe().values())}; rank {args.rank}, all linear layers\n")
        print("| load | base | one adapter | four in turn |\n|---|---|---|---|")
        for streams in STREAMS:
            prompts = [f"Tell me about {index}" for index in range(streams)]
            ways: list[list[str] | None] = [None, [NAMES[0]] * streams, [NAMES[i % len(NAMES)] for i in range(streams)]]
            best = [1e9] * len(ways)
            for _ in range(args.rounds):
                for index, way in enumerate(ways):
                    best[index] = min(best[index], seconds(prompts, way, TOKENS))
            show(f"{streams} streams, ms a token", [1000 * each / TOKENS for each in best])
        best = [1e9, 1e9]
        for turn in range(args.rounds):
            text = f"{turn} " + "word " * 500  # another each time: none is cached
            best = [min(best[0], seconds([text], None, 1)), min(best[1], seconds([text], [NAMES[0]], 1))]
        show("a prompt of 500 words, ms", [1000 * each for each in best])


def show(load: str, found: list[float]) -> None:
    cells = [f"{found[0]:.1f}", *(f"{each:.1f} ({each / found[0]:.2f}x)" for each in found[1:])]
    print(f"| {load} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
