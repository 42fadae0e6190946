"""What numbers cost in quality: perplexity of settings on a fixed text, and how far each is from the first one.

    python benchmarks/cpu/quality.py --setting dtype=float32,quantize=none --setting quantize=auto \
        [--model FILE] [--text tests/data/ropeways.txt] [--window 512] [--prompts 20] [--tokens 32] \
        [--llama "/venv/bin/python" --llama-model FILE.gguf]

A setting is a list of options with their values, `model` among them; `default` has none. Perplexity is of the text cut
into windows, each read alone by prompt log-probabilities; the first token of a window is given. Then 20 prompts are
answered greedily: tokens and texts that are those of the first setting, and the largest and mean error of their logits,
as `chairlift verify` counts them (docs/verify.md); --prompts 0 leaves that out.

With --llama, an interpreter that has llama-cpp-python, llama.cpp reads the same windows; it gives no other figures.
"""

import argparse
import gc
import json
import math
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chairlift.build import find_model, let_threads_sleep

let_threads_sleep()

from chairlift.config.options.resolve import resolve  # noqa: E402
from chairlift.core.params import SamplingParams  # noqa: E402
from chairlift.lab.verify.cases import greedy  # noqa: E402
from chairlift.lab.verify.deviation import Deviation  # noqa: E402
from chairlift.lab.verify.opened import OpenedModel, PromptSpec, prompts_for  # noqa: E402
from chairlift.lab.verify.output import Outputs  # noqa: E402
from chairlift.llm import LLM  # noqa: E402
from chairlift.models.source import locate  # noqa: E402
from chairlift.text.find import load_tokenizer  # noqa: E402
from chairlift.text.tokenizer import Tokenizer  # noqa: E402

HERE = Path(__file__).parent
TEXT = HERE.parents[1] / "tests" / "data" / "ropeways.txt"
Windows = list[list[int]]


class Quality(NamedTuple):
    perplexity: float
    outputs: Outputs | None


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare settings by perplexity, greedy tokens and logits.")
    parser.add_argument("--setting", action="append", metavar="NAME=VALUE,...", help="the first is compared with")
    parser.add_argument("--model", help="folder or GGUF file (default: the embedded one)")
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--window", type=int, default=512, help="tokens (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=20, help="answered greedily (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer (default: %(default)s)")
    parser.add_argument("--llama", metavar="PYTHON", help="interpreter with llama-cpp-python")
    parser.add_argument("--llama-model", metavar="GGUF", help="what it reads (default: --model)")
    args = parser.parse_args()
    names = args.setting or ["default"]
    source = locate(args.model)
    windows = windows_of(args, load_tokenizer(source))
    print(f"| setting | perplexity | of the first | same tokens | same texts of {args.prompts} | ", end="")
    print("max error of a logit | mean error | mean KL |\n|---|---|---|---|---|---|---|---|")
    first: Quality | None = None
    for name in names:
        quality = measure(args, windows, options_of(name))
        first = first or quality
        print(row(name, quality, first), flush=True)
    assert first is not None
    if args.llama:
        perplexity = llama_perplexity(args.llama, args.llama_model or str(source.path), windows)
        print(f"| llama.cpp | {perplexity:.4f} | {perplexity / first.perplexity:.4f} | | | | | |")


def options_of(setting: str) -> dict[str, str]:
    return {} if setting == "default" else dict(pair.split("=", 1) for pair in setting.split(","))


def measure(args: argparse.Namespace, windows: Windows, options: dict[str, str]) -> Quality:
    options = {"model": args.model} | options
    llm = LLM(**options)
    perplexity = perplexity_of(llm, windows)
    del llm
    gc.collect()
    if not args.prompts:
        return Quality(perplexity, None)
    opened = OpenedModel.open(find_model(resolve(options)))
    prompts = prompts_for(opened.model, PromptSpec(num_prompts=args.prompts, num_tokens=args.tokens))
    return Quality(perplexity, opened.as_configured(greedy(prompts, args.tokens)))


def windows_of(args: argparse.Namespace, tokenizer: Tokenizer) -> Windows:
    tokens = tokenizer.encode(args.text.read_text(), add_special=False)
    windows = [tokens[start : start + args.window] for start in range(0, len(tokens), args.window)]
    return [window for window in windows if len(window) > 1]


def perplexity_of(llm: LLM, windows: Windows) -> float:
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    completions = [llm.generate([window], params, use_tqdm=False)[0] for window in windows]
    told = [told for each in completions for told in each.prompt_logprobs or () if told is not None]
    logprobs = [next(iter(each.values())).logprob for each in told]  # the prompt's own token comes first
    assert len(logprobs) == sum(len(window) - 1 for window in windows)
    return math.exp(-sum(logprobs) / len(logprobs))


def llama_perplexity(python: str, model: str, windows: Windows) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(windows, file)
        file.flush()
        command = [*shlex.split(python), str(HERE / "quality_llama.py"), model, file.name]
        return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def row(name: str, quality: Quality, first: Quality) -> str:
    cells = [name, f"{quality.perplexity:.4f}", f"{quality.perplexity / first.perplexity:.4f}"]
    return f"| {' | '.join([*cells, *answers(quality.outputs, first.outputs)])} |"


def answers(outputs: Outputs | None, first: Outputs | None) -> Sequence[str]:
    if outputs is None or first is None:
        return [""] * 5
    deviation = Deviation.of(first, outputs)
    same_tokens = 1 - deviation.num_other_tokens / deviation.num_tokens
    return [
        f"{same_tokens:.1%}",
        str(deviation.num_texts - deviation.num_other_texts),
        f"{deviation.max_error:.3f}",
        f"{deviation.mean_error:.4f}",
        f"{deviation.mean_kl:.2e}",
    ]


if __name__ == "__main__":
    main()
