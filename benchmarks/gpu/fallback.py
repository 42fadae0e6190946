"""A model by our own path and by transformers (`--model-impl`): tokens a second of both, and their ratio.

    python benchmarks/gpu/fallback.py [--shape llama3-8b] [--streams 1,64] [--answers 128] [--prompts 16x1024]
        [--repeats 3] [--processor] [option=value ...]

Random weights in the shape of a model; only config.json is written. Each way is a process of its own; they take turns,
and the best run of each counts. Greedy, full lengths, no prefix cache, without tokenizers. Options are those of `LLM`:
device=cpu dtype=float32 threads=1. --processor counts the processor's seconds, for a CPU that others use too. What is
said at the start, such as that no steps are captured, is printed too.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAYS = ("chairlift", "transformers")
_LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16",
}  # fmt: skip
SHAPES = {
    "llama3-8b": _LLAMA | {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "rope_theta": 500000.0,
    },
    "smollm2-135m": _LLAMA | {
        "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 1536, "vocab_size": 49152, "rope_theta": 100000.0, "tie_word_embeddings": True,
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, default="llama3-8b")
    parser.add_argument("--streams", default="1,64")
    parser.add_argument("--answers", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--prompts", default="16x1024", help="prompts x tokens, of which one token each is asked")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processor", action="store_true", help="count the processor's seconds, not the clock's")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)  # one way, in this process
    parser.add_argument("options", nargs="*")
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(measure(asked, dict(option.split("=", 1) for option in asked.options))))
        return
    best: dict[str, dict[str, float]] = {way: {} for way in WAYS}
    for _ in range(asked.repeats):
        for way in WAYS:
            done = subprocess.run([sys.executable, *sys.argv, "--one", way], stdout=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(done.returncode)
            for row, speed in json.loads(done.stdout.splitlines()[-1]).items():
                best[way][row] = max(speed, best[way].get(row, 0.0))
    for row, own in best["chairlift"].items():
        other = best["transformers"][row]
        print(f"{row}: chairlift {own:.1f}, transformers {other:.1f} tokens/s: {other / own:.2f}")


def measure(asked: argparse.Namespace, options: dict[str, str]) -> dict[str, float]:
    """Tokens a second by row, each after a run of the same that warms up."""
    from chairlift.build import find_model, load
    from chairlift.config.options.resolve import resolve

    num_prompts, num_in = map(int, asked.prompts.split("x"))
    rows = {
        f"{many} streams": ([(32, asked.answers)] * many, asked.answers) for many in map(int, asked.streams.split(","))
    }
    rows["prompts"] = ([(num_in, 1)] * num_prompts, num_in)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(SHAPES[asked.shape]))
        given = {"load_format": "dummy", "model": folder, "model_impl": asked.one, "prefix_cache": "off"}
        loaded = load(find_model(resolve({**given, **options}, None, {})))
        speeds = {}
        for row, (lengths, counted) in rows.items():
            clock = time.process_time if asked.processor else time.perf_counter
            seconds_of(loaded, lengths, clock)
            speeds[row] = len(lengths) * counted / seconds_of(loaded, lengths, clock)
    return speeds


def seconds_of(loaded: Any, lengths: list[tuple[int, int]], clock: Callable[[], float]) -> float:
    from chairlift.core.engine import Engine
    from chairlift.core.ids import RequestId
    from chairlift.core.params import SamplingParams
    from chairlift.core.policies.rankings import Fcfs
    from chairlift.core.request import Request
    from chairlift.core.scheduling.scheduler import Scheduler
    from chairlift.live.clock import WallClock

    engine, rng = (
        Engine(Scheduler(loaded.limits, Fcfs(), has_prefix_index=False), loaded.runner, WallClock()),
        random.Random(1),
    )
    for index, (num_in, num_out) in enumerate(lengths):
        prompt = tuple(rng.randrange(16, loaded.limits.vocab_size - 16) for _ in range(num_in))
        params = SamplingParams(temperature=0, max_tokens=num_out, ignore_eos=True)
        engine.add((Request(id=RequestId(index), prompt=prompt, params=params, max_output=num_out, seed=0),))
    began = clock()
    while engine.has_work:
        engine.step()
    return clock() - began


if __name__ == "__main__":
    main()
