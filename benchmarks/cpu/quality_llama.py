"""llama.cpp's perplexity of windows of tokens, through llama-cpp-python: the part of quality.py that runs in its venv.

python benchmarks/cpu/quality_llama.py MODEL.gguf WINDOWS.json
"""

import json
import math
import os
import sys
from pathlib import Path

import llama_cpp
import numpy as np


def main() -> None:
    model, file = sys.argv[1:]
    windows: list[list[int]] = json.loads(Path(file).read_text())
    longest, threads = max(map(len, windows)), os.cpu_count()
    llama = llama_cpp.Llama(
        model,
        n_ctx=longest,
        n_batch=longest,
        n_threads=threads,
        n_threads_batch=threads,
        logits_all=True,
        verbose=False,
    )
    logprobs = [value for window in windows for value in window_logprobs(llama, window)]
    print(math.exp(-sum(logprobs) / len(logprobs)))


def window_logprobs(llama: llama_cpp.Llama, window: list[int]) -> list[float]:
    """Of each token but the first, which is given."""
    llama.reset()
    llama.eval(window)
    rows = llama.scores[: len(window) - 1].astype(np.float64)
    tops = rows.max(axis=1, keepdims=True)
    sums = np.log(np.exp(rows - tops).sum(axis=1)) + tops[:, 0]
    return list(rows[np.arange(len(rows)), window[1:]] - sums)


if __name__ == "__main__":
    main()
