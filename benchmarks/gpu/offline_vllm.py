"""The offline rows of `offline.py` for vLLM, in an environment that has it: the same lengths, token ids in and out.

    python benchmarks/gpu/offline_vllm.py --model DIR --workload FILE [--rows contest,...]
        [--max-num-seqs N] [--longest-first]

`--longest-first`: each request's priority is its length negated, under the priority policy. Random weights, greedy,
full lengths, prefix caching off, no detokenising. One line of JSON per run.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rows import Lengths, figures_of, prompts_of, rows_of, seconds_of
from vllm import LLM, SamplingParams


def run(llm: LLM, lengths: Lengths, seed: int, longest_first: bool) -> float:
    prompts = [{"prompt_token_ids": ids} for ids in prompts_of(lengths, 32000, seed)]
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False) for _, n in lengths]
    more: dict[str, Any] = {"priority": [-n for _, n in lengths]} if longest_first else {}

    def answer() -> list[int]:
        return [len(each.outputs[0].token_ids) for each in llm.generate(prompts, params, use_tqdm=False, **more)]

    return seconds_of(lengths, answer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--workload", type=Path, required=True)
    parser.add_argument("--rows", default="contest,single,prompts,answers")
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--longest-first", action="store_true")
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    more = {} if args.max_num_seqs is None else {"max_num_seqs": args.max_num_seqs}
    if args.longest_first:
        more["scheduling_policy"] = "priority"
    began = time.perf_counter()
    llm = LLM(
        model=args.model, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", max_model_len=4096,
        enable_prefix_caching=False, **more,
    )  # fmt: skip
    print(json.dumps({"built_s": round(time.perf_counter() - began, 1), "settings": more}), flush=True)
    rows = rows_of(args.workload)
    run(llm, rows["contest"][:64], 0, args.longest_first)  # warms up
    for name in args.rows.split(","):
        for repeat in range(args.repeats):
            figures = figures_of(rows[name], run(llm, rows[name], repeat, args.longest_first))
            print(json.dumps({"row": name, **figures}), flush=True)


if __name__ == "__main__":
    main()
