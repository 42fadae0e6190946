"""How long one long prompt takes on this CPU: a prompt of 8,000 random tokens and one token of output.

    python benchmarks/cpu/long_prompt.py [--model GGUF] [--tokens 8000] [--repeat 2] [options of the model]

Without --model it is the embedded one. Options such as --kernels, --dtype and --quantize go to the engine as they are.
"""

import argparse
import random
import time

from chairlift import LLM, SamplingParams

BLOCK = 16


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a long prompt.")
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantize")
    args = parser.parse_args()
    chosen = {"kernels": args.kernels, "dtype": args.dtype} | ({"quantize": args.quantize} if args.quantize else {})
    room = args.tokens + 16
    llm = LLM(
        args.model, prefix_cache=False, max_model_len=room, num_blocks=room // BLOCK + 2, block_size=BLOCK, **chosen
    )
    rng = random.Random(0)
    prompt = [rng.randrange(16, 30_000) for _ in range(args.tokens)]
    time_prompt(llm, prompt[:64])  # warm
    runs = [time_prompt(llm, prompt) for _ in range(args.repeat)]
    best = min(runs)[0]
    shown = "; ".join(f"{wall:.2f} s, {cpu:.1f} of CPU" for wall, cpu in runs)
    print(f"{args.tokens} tokens: {best:.2f} s, {args.tokens / best:.0f} tokens/s (runs: {shown}; options: {chosen})")


def time_prompt(llm: LLM, prompt: list[int]) -> tuple[float, float]:
    """Seconds of wall time, and of CPU time over all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    llm.generate([prompt], SamplingParams(temperature=0, max_tokens=1, ignore_eos=True), use_tqdm=False)
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
