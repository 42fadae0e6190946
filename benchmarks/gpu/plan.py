"""What `plan` reckons against what a load on this GPU then takes, part by part, each load in a process of its own.

    python benchmarks/gpu/plan.py [--memory 0.9,0.2] [--json OUT]

Three shapes with random weights: Llama-2-7B, Llama-3-8B and Llama-3.2-1B. `room` is what either leaves for keys and
values beside all else; `tokens` what the cache then holds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from chairlift.runner.memory.budget import Budget

LLAMA: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5}
SHAPES: dict[str, dict[str, Any]] = {
    "7B": {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096,
    },
    "8B": {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
    },
    "1B": {
        "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": True,
    },
}  # fmt: skip
PARTS = ("others", "weights", "activations", "graphs", "kv")
MIB = 2**20


def compare(name: str, share: float) -> dict[str, list[int]]:
    """In this process: part -> [planned, loaded]."""
    from chairlift.config.settings import Settings
    from chairlift.models.source import Source, load_model_config
    from chairlift.runner.machine.devices import find_device
    from chairlift.runner.memory.forecast import forecast
    from chairlift.runner.start.load import load_runner

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(LLAMA | SHAPES[name]))
        source = Source("folder", Path(folder), name)
        config = load_model_config(source)
        settings = Settings(device="cuda", load_format="dummy", memory=share)
        plan = forecast(settings, source, config, find_device("cuda", None))
        loaded = load_runner(settings, source, config)
    assert loaded.budget is not None
    both = plan.budget, loaded.budget
    found = {part: [getattr(budget, part) for budget in both] for part in PARTS}
    found["room"] = [_room(budget, share) for budget in both]
    return found | {"tokens": [plan.limits.max_pool_tokens, loaded.limits.max_pool_tokens]}


def _room(budget: Budget, share: float) -> int:
    return int(share * budget.total) - budget.others - budget.weights - budget.activations - budget.graphs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", default="0.9,0.2")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(compare(args.one[0], float(args.one[1]))))
        return
    rows: list[dict[str, object]] = []
    print("| shape | --memory | part | planned | loaded | off |\n|---|---|---|---|---|---|")
    for share in args.memory.split(","):
        for name in SHAPES:
            told = subprocess.run([sys.executable, __file__, "--one", name, share], capture_output=True, text=True)
            if told.returncode:
                print(f"| {name} | {share} | failed: {told.stderr.strip().splitlines()[-1]} |", flush=True)
                continue
            for part, (planned, loaded) in json.loads(told.stdout.splitlines()[-1]).items():
                off = planned / loaded - 1.0 if loaded else 0.0
                unit = 1 if part == "tokens" else MIB
                shown = f"{planned / unit:,.0f} | {loaded / unit:,.0f} | {off:+.1%}"
                print(f"| {name} | {share} | {part} | {shown} |", flush=True)
                rows.append({"shape": name, "memory": float(share), "part": part, "planned": planned, "loaded": loaded})
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
