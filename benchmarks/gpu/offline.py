"""The offline rows on a GPU: a workload of lengths, one stream, long prompts, long answers, through `LLM.generate`.

    python benchmarks/gpu/offline.py --model DIR --workload FILE [--settings tuned|default] [--rows contest,single,...]
        [--exact]

DIR needs only config.json and a tokenizer: weights are random. Each line of FILE has prompt_tokens and output_tokens;
one token is added to each prompt, as a beginning-of-sequence token would be. Token ids in, token ids out; greedy, full
lengths, prefix caching off. `--first N`: the first N requests of the workload. Each row runs `--repeats` times; the
first run of a row also captures graphs. One line of JSON per run.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rows import Lengths, figures_of, prompts_of, rows_of, seconds_of

from chairlift import LLM, SamplingParams

# What tuning means here: the longest answers first, and steps of a size that the matrix products like.
TUNED: dict[str, dict[str, Any]] = {
    "contest": {"policy": "longest-first", "max_running": 256, "max_step_tokens": 256},
    "single": {"max_running": 256, "max_step_tokens": 256},
    "prompts": {"max_running": 256, "max_step_tokens": 1536, "admission": "peak"},
    "answers": {"max_running": 256, "max_step_tokens": 2048, "admission": "peak"},
}


def run(llm: LLM, lengths: Lengths, seed: int) -> float:
    prompts = prompts_of(lengths, llm.limits.vocab_size, seed)
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False) for _, n in lengths]

    def answer() -> list[int]:
        answers = llm.generate(prompts, params, use_tqdm=False)
        return [len(each.outputs[0].token_ids) for each in answers]

    return seconds_of(lengths, answer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--workload", type=Path, required=True)
    parser.add_argument("--settings", choices=("tuned", "default"), default="tuned")
    parser.add_argument("--rows", default="contest,single,prompts,answers")
    parser.add_argument("--first", type=int)
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--exact", action="store_true")
    args = parser.parse_args()
    rows, wanted = rows_of(args.workload, args.first), args.rows.split(",")
    base = {"load_format": "dummy", "dtype": "bfloat16", "max_model_len": args.max_model_len, "prefix_cache": False}
    base |= {"exact": args.exact}
    llm, built = None, None
    for name in wanted:
        settings = TUNED[name] if args.settings == "tuned" else {}
        if built != settings:
            del llm  # its memory is needed for the next
            began = time.perf_counter()
            llm, built = LLM(args.model, **base, **settings), settings
            print(json.dumps({"built_s": round(time.perf_counter() - began, 1), "settings": settings}), flush=True)
        assert llm is not None
        for repeat in range(args.repeats):
            figures = figures_of(rows[name], run(llm, rows[name], repeat))
            kind = {"set": args.settings, "exact": args.exact}
            print(json.dumps({"row": name, **kind, "run": repeat, **figures}), flush=True)


if __name__ == "__main__":
    main()
