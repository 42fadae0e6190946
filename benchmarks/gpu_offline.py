"""A workload of lengths through the Python interface on a GPU, all requests at once: seconds and tokens per second.

    python benchmarks/gpu_offline.py --model DIR --workload FILE [--policy longest-first] [--max-running 256]

DIR needs only config.json and a tokenizer: weights are random. Each line of FILE has prompt_tokens and output_tokens;
one token is added to each prompt, as a beginning-of-sequence token would be. Prefix caching is off, end-of-sequence
ignored. The first of the runs also captures graphs. One stream of 128 + 256 tokens follows.
"""

import argparse
import json
import random
import time

from chairlift import LLM, SamplingParams


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--workload", required=True)
    arguments.add_argument("--policy", default="longest-first")
    arguments.add_argument("--max-running", type=int, default=256)
    arguments.add_argument("--max-step-tokens", type=int, default=512)
    arguments.add_argument("--repeat", type=int, default=3)
    args = arguments.parse_args()
    llm = LLM(
        args.model, load_format="dummy", dtype="bfloat16", max_model_len=2048, prefix_cache=False, policy=args.policy,
        max_running=args.max_running, max_step_tokens=args.max_step_tokens,
    )  # fmt: skip
    rng = random.Random(0)
    with open(args.workload) as file:
        lengths = [(row["prompt_tokens"] + 1, row["output_tokens"]) for row in map(json.loads, file)]
    for prompts, outputs, repeat in (
        ([p for p, _ in lengths], [n for _, n in lengths], args.repeat),
        ([128], [256], args.repeat),
    ):
        ids = [[rng.randrange(16, llm.limits.vocab_size - 16) for _ in range(p)] for p in prompts]
        params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in outputs]
        for _ in range(repeat):
            start = time.perf_counter()
            answers = llm.generate(ids, params, use_progress=False)
            seconds = time.perf_counter() - start
            got = sum(len(answer.samples[0].tokens) for answer in answers)
            assert got == sum(outputs)
            print(f"{len(ids)} requests, {got} tokens: {seconds:.2f} s, {got / seconds:.1f} tok/s", flush=True)


if __name__ == "__main__":
    main()
